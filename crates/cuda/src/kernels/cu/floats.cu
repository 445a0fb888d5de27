// Products of matrices of F32 with rows of activations, TILE x TILE results a block, EACH x EACH a thread. Several with one
// matrix share a launch. Exact but for the order of sums; small matrices, as those that rotate heads, are all on their way at
// once.
//
// Results lie one after the other, or are rows of a cache in blocks: a head's in each of its planes, a token's where the
// indices say.

struct Columns {
    u64 x, y;
    i64 x_nb[3];      // bytes
    int ne[2];        // of a cache: heads and tokens
    int count, first; // rows, and the grid's first place of them; for parts that are not there, more than there are
    u64 indices;      // of a cache, or 0
    i64 y_head, y_row, rows;
    int dtype, wide;  // `wide`: indices of 64 bits
};

struct FloatProducts {
    Columns part[4];
    u64 w;
    i64 w_row;        // bytes
    int m, k;
    u64 marks;
    int step;
    int early;        // nothing writes the matrix: it is read before the kernels in front have ended
};

#define STEP 32               // elements at a time
#define APART (STEP + 4)      // from row to row in shared memory
#define STAGES 4
#define LINES (TILE / EACH)   // threads in each direction
#define THREADS (LINES * LINES)
#define AT_ONCE (THREADS / (STEP / 4))  // rows that threads bring at a time
#define BROUGHT (TILE / AT_ONCE)
static_assert(LINES == 16 && EACH % 2 == 0, "a block's elements are two in each of 16 lanes");

// What is written to a cache: nothing if an index is wrong, and of two tokens with the same row the later one.
struct Writing {
    int bad, tied;
};

// For all threads. Indices may be the same, as one is not above the one before.
Writing writing_of(const FloatProducts& t, const Columns& c) {
    __shared__ int bad, tied;
    if (threadIdx.x == 0) bad = tied = 0;
    __syncthreads();
    for (int token = threadIdx.x; c.indices && token < c.ne[1]; token += THREADS) {
        i64 row = index_at(c.indices, c.wide, token);
        if (row < -1 || row >= c.rows) {
            bad = 1;
            if (blockIdx.x == c.first && blockIdx.y == 0) mark(t.marks, t.step, row, c.rows);
        }
        if (token > 0 && row <= index_at(c.indices, c.wide, token - 1)) tied = 1;
    }
    __syncthreads();
    return {bad, tied};
}

// The row of a cache that a token goes to, or -1.
i64 row_of(const Columns& c, const Writing& writing, int token) {
    i64 row = writing.bad || token >= c.ne[1] ? -1 : index_at(c.indices, c.wide, token);
    for (int other = token + 1; writing.tied && other < c.ne[1]; other++)
        if (index_at(c.indices, c.wide, other) == row) return -1;
    return row;
}

// Elements `lane` and `lane + 16` of 16 lanes as a block, rounded as by `encode_block` in `general.cu`.
void put_block(int dtype, u64 block, float low, float high, bool inside) {
    int lane = threadIdx.x % 16, half = threadIdx.x % 32 - lane;
    u32 most = max(size_of(low), size_of(high));
    for (int step = 8; step; step >>= 1) most = max(most, __shfl_xor_sync(~0u, most, step));
    // The first of the largest.
    u32 lows = __ballot_sync(~0u, size_of(low) == most) >> half & 0xffff, highs = __ballot_sync(~0u, size_of(high) == most) >> half & 0xffff;
    int from = half + __ffs(lows ? lows : highs) - 1;
    float a = __shfl_sync(~0u, low, from), b = __shfl_sync(~0u, high, from);
    BlockScale scale = block_scale(dtype, most == 0 ? 0.0f : lows ? a : b);
    if (!inside) return;
    if (lane == 0) *(u16*)(block + (dtype == Q8_0 ? Q8_0_SCALE_AT : Q4_0_SCALE_AT)) = float_to_half(scale.scale);
    u8* codes = (u8*)block + (dtype == Q8_0 ? Q8_0_CODES_AT : Q4_0_CODES_AT);
    int first = block_code(dtype, low, scale), second = block_code(dtype, high, scale);
    if (dtype == Q8_0) codes[16 + lane] = second;
    codes[lane] = dtype == Q8_0 ? first : first | second << 4;
}

extern __shared__ float memory[];

extern "C" __global__ void __launch_bounds__(THREADS) float_products(const __grid_constant__ FloatProducts t) {
    let_others_begin();
    if (!t.early) wait_for_others();
    int place = blockIdx.x, number = (place >= t.part[1].first) + (place >= t.part[2].first) + (place >= t.part[3].first);
    const Columns& c = t.part[number];
    int i0 = blockIdx.y * TILE, j0 = (place - c.first) * TILE, steps = (t.k + STEP - 1) / STEP;
    // A thread brings four neighbouring elements of a step, of some rows of the matrix and as many of activations.
    int element = threadIdx.x % (STEP / 4) * 4, line = threadIdx.x / (STEP / 4);
    u64 from[2][BROUGHT];
#pragma unroll
    for (int n = 0; n < BROUGHT; n++) {
        int i = i0 + line + n * AT_ONCE, j = j0 + line + n * AT_ONCE;
        u64 x = c.x + j % c.ne[0] * c.x_nb[0] + j / c.ne[0] % c.ne[1] * c.x_nb[1] + j / c.ne[0] / c.ne[1] * c.x_nb[2];
        from[0][n] = i < t.m ? t.w + i * t.w_row + element * 4 : 0;
        from[1][n] = j < c.count ? x + element * 4 : 0;
    }
    auto load = [&](int step, int side) {
        u32 to = (u32)__cvta_generic_to_shared(memory + (step % STAGES * 2 + side) * TILE * APART + line * APART + element);
#pragma unroll
        for (int n = 0; n < BROUGHT; n++) {
            bool inside = from[side][n] && step * STEP + element < t.k;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                         ::"r"(to + n * AT_ONCE * APART * 4), "l"(inside ? from[side][n] + step * STEP * 4 : t.w), "r"(inside ? 16 : 0) : "memory");
        }
    };
    for (int step = 0; step < STAGES - 1; step++) load(step, 0);
    wait_for_others();
    for (int step = 0; step < STAGES - 1; step++) {
        load(step, 1);
        asm volatile("cp.async.commit_group;");
    }
    Writing writing = {0, 0};
    if (c.indices) writing = writing_of(t, c);
    int own_i = threadIdx.x % LINES, own_j = threadIdx.x / LINES;
    float sums[EACH][EACH] = {};
    for (int step = 0; step < steps; step++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        // A thread that is here has done with the step before, whose place is taken next.
        __syncthreads();
        load(step + STAGES - 1, 0);
        load(step + STAGES - 1, 1);
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
    if (c.indices) {
#pragma unroll
        for (int n = 0; n < EACH; n++) {
            int j = j0 + own_j + n * LINES, head = j % c.ne[0];
            i64 row = row_of(c, writing, j / c.ne[0]);
            u64 block = c.y + head * c.y_head + row * c.y_row + i0 / 32 * (c.dtype == Q8_0 ? Q8_0_BYTES : Q4_0_BYTES);
#pragma unroll
            for (int b = 0; b < EACH / 2; b++)
                put_block(c.dtype, block + b * (c.dtype == Q8_0 ? Q8_0_BYTES : Q4_0_BYTES), sums[n][2 * b], sums[n][2 * b + 1],
                          row >= 0 && i0 + b * 32 < t.m);
        }
        return;
    }
#pragma unroll
    for (int n = 0; n < EACH * EACH; n++) {
        int i = i0 + own_i + n % EACH * LINES, j = j0 + own_j + n / EACH * LINES;
        if (i < t.m && j < c.count) ((float*)c.y)[(i64)j * t.m + i] = sums[n / EACH][n % EACH];
    }
}
