// Products of matrices in blocks (WTYPE) with a few rows of activations in 8 bits, on tensor cores: 32 x COLUMNS results a
// block. Every warp takes groups of 32 elements of its own, and in the end their sums come together.
//
// A lane opens one row's group; by way of shared memory the codes come to the lanes that tensor cores want them in.

struct Product {
    u64 w;
    u64 start[4];
    u64 x, numbers, add, y;  // `x` and `numbers`: a group of all rows, then the next; see `eights`
    i64 add_row, y_row;      // bytes from row to row; `add_row` 0 for one row that all share
    int m, n, k, fresh;
    u64 sorted;              // of experts, which `groups.cu` computes
    int tiles, shared;
};

#define WARPS 8
#define ROWS 32
#define TILES (COLUMNS / 8)
#define STRIDE 12  // words of a row in shared memory: codes, factors, what is added
#define DEEP 4     // groups that a lane has on their way
#define FLOOR 36   // sums of a column in shared memory, so that columns lie in different banks
#define HALVES_DIFFER (WTYPE == Q6_K || WTYPE == Q2_K || WTYPE == Q3_K)
#define ADDS (!(WTYPE == Q8_0 || WTYPE == IQ4_NL || WTYPE == IQ4_XS || WTYPE == MXFP4))

extern __shared__ uint4 memory[];

// 16 x 8 sums of 32 elements, or of 16. Codes of all types fit in signed bytes.
void multiply(int* c, const u32* a, uint2 b) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}
void multiply_half(int* c, const u32* a, u32 b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b));
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) eight_bit_product(const __grid_constant__ Product t) {
    let_others_begin();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, line = lane / 4, four = lane % 4;
    int i0 = blockIdx.x * ROWS, j0 = blockIdx.y * COLUMNS, groups = t.k / 32;
    Planes planes = planes_of(t.w, t.start);
    u32 own = (u32)min(i0 + lane, t.m - 1) * groups;
    u32* stage = (u32*)memory + warp * ROWS * STRIDE;
    Raw<WTYPE> raw[DEEP];
#pragma unroll
    for (int d = 0; d < DEEP; d++) load_group<WTYPE>(raw[d], planes, own + min(warp * DEEP + d, groups - 1));
    // Weights are nobody's to write; activations are.
    wait_for_others();
    float sums[2][TILES][4] = {};
    for (int first = warp * DEEP; first < groups; first += WARPS * DEEP) {
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            int group = first + d;
            if (group >= groups) break;
            Group g;
            open_group<WTYPE>(raw[d], g);
            load_group<WTYPE>(raw[d], planes, own + min(group + WARPS * DEEP, groups - 1));
            __syncwarp();
            uint4* row = (uint4*)(stage + lane * STRIDE);
            row[0] = make_uint4(g.code[0], g.code[1], g.code[2], g.code[3]);
            row[1] = make_uint4(g.code[4], g.code[5], g.code[6], g.code[7]);
            row[2] = make_uint4(__float_as_uint(g.factor[0]), __float_as_uint(g.factor[1]), __float_as_uint(g.added[0]),
                                __float_as_uint(g.added[1]));
            __syncwarp();
            u32 a[2][4];
            float4 scales[2][2];
#pragma unroll
            for (int m = 0; m < 2; m++) {
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const u32* from = stage + (m * 16 + half * 8 + line) * STRIDE;
                    a[m][half] = from[four];
                    a[m][2 + half] = from[4 + four];
                    scales[m][half] = *(const float4*)(from + 8);
                }
            }
            const uint2* x = (const uint2*)t.x + (u64)group * t.n * 4;
            const float4* numbers = (const float4*)t.numbers + (u64)group * t.n;
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                int column = j0 + n * 8;
                if (column >= t.n) break;
                uint2 b = x[min(column + line, t.n - 1) * 4 + four];
                float4 number[2];
#pragma unroll
                for (int c = 0; c < 2; c++) number[c] = numbers[min(column + four * 2 + c, t.n - 1)];
#pragma unroll
                for (int m = 0; m < 2; m++) {
#if HALVES_DIFFER
                    int low[4] = {}, high[4] = {};
                    multiply_half(low, a[m], b.x);
                    multiply_half(high, a[m] + 2, b.y);
#else
                    int both[4] = {};
                    multiply(both, a[m], b);
#endif
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const float4 &w = scales[m][i / 2], &v = number[i % 2];
                        float& sum = sums[m][n][i];
#if HALVES_DIFFER
                        sum += v.x * (w.x * low[i] + w.y * high[i]);
                        sum += w.z * v.y + w.w * v.z;
#else
                        sum += w.x * v.x * both[i];
                        if (ADDS) sum += w.z * v.w;
#endif
                    }
                }
            }
        }
    }

    __syncthreads();
    float* all = (float*)memory;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                all[(warp * COLUMNS + n * 8 + four * 2 + i % 2) * FLOOR + m * 16 + i / 2 * 8 + line] = sums[m][n][i];
    __syncthreads();
    for (int e = threadIdx.x; e < ROWS * COLUMNS; e += blockDim.x) {
        int row = i0 + e % ROWS, column = j0 + e / ROWS;
        if (row >= t.m || column >= t.n) continue;
        float sum = 0.0f;
        for (int w = 0; w < WARPS; w++) sum += all[(w * COLUMNS + e / ROWS) * FLOOR + e % ROWS];
        if (t.add) sum += *(const float*)(t.add + column * t.add_row + row * 4);
        *(float*)(t.y + column * t.y_row + row * 4) = sum;
    }
}
