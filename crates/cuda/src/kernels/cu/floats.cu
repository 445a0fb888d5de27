// Products of matrices of F32 with rows of activations, TILE x TILE results a block, EACH x EACH a thread. Several with one
// matrix share a launch. Exact but for the order of sums; small matrices, as those that rotate heads, are all on their way at
// once.

// Rows of activations and their results, which lie one after the other.
struct Columns {
    u64 x, y;
    i64 x_nb[3];      // bytes
    int ne[2];
    int count, first; // rows, and the grid's first place of them; for parts that are not there, more than there are
};

struct FloatProducts {
    Columns part[4];
    u64 w;
    i64 w_row;        // bytes
    int m, k;
    int early, gap;   // nothing writes the matrix: it is read before the kernels in front have ended
};

#define STEP 32               // elements at a time
#define APART (STEP + 4)      // from row to row in shared memory
#define STAGES 4
#define LINES (TILE / EACH)   // threads in each direction
#define THREADS (LINES * LINES)

extern __shared__ float memory[];

extern "C" __global__ void __launch_bounds__(THREADS) float_products(const __grid_constant__ FloatProducts t) {
    let_others_begin();
    if (!t.early) wait_for_others();
    int place = blockIdx.x, number = (place >= t.part[1].first) + (place >= t.part[2].first) + (place >= t.part[3].first);
    const Columns& c = t.part[number];
    int i0 = blockIdx.y * TILE, j0 = (place - c.first) * TILE, steps = (t.k + STEP - 1) / STEP;
    // Some of a step's rows: of the matrix, then of activations.
    auto load = [&](int step, int first, int last) {
        u32 to = (u32)__cvta_generic_to_shared(memory + step % STAGES * 2 * TILE * APART);
        for (int n = first * (STEP / 4) + threadIdx.x; n < last * (STEP / 4); n += THREADS) {
            int row = n / (STEP / 4), element = n % (STEP / 4) * 4, i = i0 + row, j = j0 + row - TILE;
            bool left = row < TILE, inside = step * STEP + element < t.k && (left ? i < t.m : j < c.count);
            u64 from = left ? t.w + i * t.w_row
                            : c.x + j % c.ne[0] * c.x_nb[0] + j / c.ne[0] % c.ne[1] * c.x_nb[1] + j / c.ne[0] / c.ne[1] * c.x_nb[2];
            from = inside ? from + (step * STEP + element) * 4 : t.w;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                         ::"r"(to + (row * APART + element) * 4), "l"(from), "r"(inside ? 16 : 0) : "memory");
        }
    };
    for (int step = 0; step < STAGES - 1; step++) load(step, 0, TILE);
    wait_for_others();
    for (int step = 0; step < STAGES - 1; step++) {
        load(step, TILE, 2 * TILE);
        asm volatile("cp.async.commit_group;");
    }
    int own_i = threadIdx.x % LINES, own_j = threadIdx.x / LINES;
    float sums[EACH][EACH] = {};
    for (int step = 0; step < steps; step++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        // A thread that is here has done with the step before, whose place is taken next.
        __syncthreads();
        load(step + STAGES - 1, 0, 2 * TILE);
        asm volatile("cp.async.commit_group;");
        const float* rows = memory + step % STAGES * 2 * TILE * APART;
#pragma unroll
        for (int element = 0; element < STEP; element += 4) {
            float4 w[EACH], x[EACH];
#pragma unroll
            for (int n = 0; n < EACH; n++) {
                w[n] = *(const float4*)(rows + (own_i + n * LINES) * APART + element);
                x[n] = *(const float4*)(rows + (TILE + own_j + n * LINES) * APART + element);
            }
#pragma unroll
            for (int j = 0; j < EACH; j++)
#pragma unroll
                for (int i = 0; i < EACH; i++)
                    sums[j][i] += w[i].x * x[j].x + w[i].y * x[j].y + w[i].z * x[j].z + w[i].w * x[j].w;
        }
    }
#pragma unroll
    for (int n = 0; n < EACH * EACH; n++) {
        int i = i0 + own_i + n % EACH * LINES, j = j0 + own_j + n / EACH * LINES;
        if (i < t.m && j < c.count) ((float*)c.y)[(i64)j * t.m + i] = sums[n / EACH][n % EACH];
    }
}
