// Products of matrices in blocks (WTYPE) with a few rows of activations in 8 bits, on tensor cores: ROWS x COLUMNS results a
// block. Every warp takes a run of the elements, and in the end the warps' sums come together.
//
// A quad of lanes has a row, and of four groups of 32 elements each lane brings one, so that a quad reads neighbouring bytes.
// The codes then go round the quad, as tensor cores want of every group a part in every lane.

struct Product {
    u64 w;
    u64 start[4];
    u64 x, numbers, add, y;  // `x` and `numbers`: a group of all rows, then the next; see `round_to_int8`
    i64 add_row, y_row;      // bytes from row to row; `add_row` 0 for one row that all share
    int m, n, k, fresh;
    u64 sorted;              // of experts, which `groups.cu` computes
    int tiles, shared;
};

#define WARPS 8
#define TALL (COLUMNS > 8 ? 2 : 1)       // times 16 rows
#define ROWS (16 * TALL)
#define TILES (COLUMNS / 8)
#define DEEP (TALL > 1 ? 2 : 4)          // steps of four groups that are on their way
#define FLOOR (ROWS + 4)                 // sums of a column in shared memory, so that columns lie in different banks
#define HALVES_DIFFER (WTYPE == Q6_K || WTYPE == Q2_K || WTYPE == Q3_K)
#define ADDS (!(WTYPE == Q8_0 || WTYPE == IQ4_NL || WTYPE == IQ4_XS || WTYPE == MXFP4))

extern __shared__ uint4 memory[];

// 16 x 8 sums of 32 elements, or of 16. Codes of all types fit in signed bytes.
void multiply(int* c, const u32* a, uint2 b) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(0));
}
void multiply_half(int* c, const u32* a, u32 b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b), "r"(0));
}

// Lane `i` of a quad gets what the others have for it: of lane `g`, `v[i]` of that lane as its own `v[g]`.
void go_round(u32* v) {
    bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        u32 got = __shfl_xor_sync(~0u, odd ? v[i] : v[i + 1], 1);
        if (odd) v[i] = got; else v[i + 1] = got;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u32 got = __shfl_xor_sync(~0u, upper ? v[i] : v[i + 2], 2);
        if (upper) v[i] = got; else v[i + 2] = got;
    }
}

float of_lane(float x, int lane) { return __shfl_sync(~0u, x, lane, 4); }

// A lane's part of four groups of a row: of each group, four codes of the first 16 elements and four of the others.
struct Row {
    u32 first[4], second[4];
    float factor[2], added[2];  // of the group that the lane has dequantized
};

void open_row(const Raw<WTYPE>& raw, bool inside, Row& row) {
    Group g;
    open_group<WTYPE>(raw, g);
#pragma unroll
    for (int i = 0; i < 4; i++) row.first[i] = g.code[i], row.second[i] = g.code[4 + i];
    go_round(row.first);
    go_round(row.second);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        row.factor[half] = inside ? g.factor[half] : 0.0f;
        row.added[half] = inside ? g.added[half] : 0.0f;
    }
}

// What eight rows of activations have in a group: a lane's codes of one of them, and the numbers of the two that it sums up.
struct Activations {
    uint2 codes;
#if HALVES_DIFFER
    float4 numbers[2];
#else
    float2 numbers[2];
#endif
};

void load_activations(Activations& a, const Product& t, int group, int column) {
    int line = threadIdx.x % 32 / 4, four = threadIdx.x % 4;
    u64 at = (u64)group * t.n;
    a.codes = ((const uint2*)t.x)[(at + min(column + line, t.n - 1)) * 4 + four];
#pragma unroll
    for (int c = 0; c < 2; c++) {
        const float4* numbers = (const float4*)t.numbers + at + min(column + four * 2 + c, t.n - 1);
#if HALVES_DIFFER
        a.numbers[c] = *numbers;
#else
        a.numbers[c] = *(const float2*)numbers;
#endif
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, COLUMNS > 16 ? 1 : 2) eight_bit_product(const __grid_constant__ Product t) {
    let_others_begin();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, line = lane / 4, four = lane % 4;
    int i0 = blockIdx.x * ROWS, j0 = blockIdx.y * COLUMNS, groups = t.k / 32;
    int steps = (groups + 3) / 4, each = (steps + WARPS - 1) / WARPS, begin = warp * each, end = min(begin + each, steps);
    Planes planes = planes_of(t.w, t.start);
    u32 rows[2 * TALL];
#pragma unroll
    for (int r = 0; r < 2 * TALL; r++) rows[r] = (u32)min(i0 + r * 8 + line, t.m - 1) * groups;
    Raw<WTYPE> raw[DEEP][2 * TALL];
    auto load = [&](Raw<WTYPE>* own, int step) {
        if (step < end)
#pragma unroll
            for (int r = 0; r < 2 * TALL; r++) load_group<WTYPE>(own[r], planes, rows[r] + min(step * 4 + four, groups - 1));
    };
#pragma unroll
    for (int d = 0; d < DEEP; d++) load(raw[d], begin + d);
    // Nothing writes weights; activations come from the kernel before.
    wait_for_others();
    float sums[TALL][TILES][4] = {};
    for (int first = begin; first < end; first += DEEP) {
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            int step = first + d;
            if (step >= end) break;
            // Few activations are all on their way while codes are opened.
            const int AHEAD = TILES == 1 ? 4 : 1;
            Activations activations[AHEAD][TILES];
            auto load_right = [&](int q) {
#pragma unroll
                for (int n = 0; n < TILES; n++)
                    load_activations(activations[q % AHEAD][n], t, min(step * 4 + q, groups - 1), j0 + n * 8);
            };
            if (AHEAD > 1)
#pragma unroll
                for (int q = 0; q < 4; q++) load_right(q);
            Row row[2 * TALL];
#pragma unroll
            for (int r = 0; r < 2 * TALL; r++) open_row(raw[d][r], step * 4 + four < groups, row[r]);
            load(raw[d], step + DEEP);
#pragma unroll
            for (int q = 0; q < 4; q++) {
                if (AHEAD == 1) load_right(q);
#pragma unroll
                for (int m = 0; m < TALL; m++) {
                    const Row &upper = row[2 * m], &lower = row[2 * m + 1];
                    const u32 a[4] = {upper.first[q], lower.first[q], upper.second[q], lower.second[q]};
                    float factor[2][2], added[2][2];
#pragma unroll
                    for (int half = 0; half < (HALVES_DIFFER ? 2 : 1); half++)
#pragma unroll
                        for (int r = 0; r < 2; r++) {
                            factor[r][half] = of_lane(row[2 * m + r].factor[half], q);
                            if (ADDS) added[r][half] = of_lane(row[2 * m + r].added[half], q);
                        }
#pragma unroll
                    for (int n = 0; n < TILES; n++) {
                        const Activations& x = activations[q % AHEAD][n];
#if HALVES_DIFFER
                        int low[4], high[4];
                        multiply_half(low, a, x.codes.x);
                        multiply_half(high, a + 2, x.codes.y);
#else
                        int both[4];
                        multiply(both, a, x.codes);
#endif
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            float& sum = sums[m][n][i];
#if HALVES_DIFFER
                            const float4& v = x.numbers[i % 2];
                            sum += v.x * (factor[i / 2][0] * low[i] + factor[i / 2][1] * high[i]);
                            sum += added[i / 2][0] * v.z + added[i / 2][1] * v.w;
#else
                            const float2& v = x.numbers[i % 2];
                            sum += factor[i / 2][0] * v.x * both[i];
                            if (ADDS) sum += added[i / 2][0] * v.y;
#endif
                        }
                    }
                }
            }
        }
    }

    float* all = (float*)memory;
#pragma unroll
    for (int m = 0; m < TALL; m++)
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
