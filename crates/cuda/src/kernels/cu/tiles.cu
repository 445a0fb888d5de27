// Products of matrices with many rows of activations, on tensor cores. Weights of one type (WTYPE) are dequantized to F16 as
// they go into shared memory; activations are F16 already. 128 x 128 results a block, 128 elements at a time, which lie in
// two tiles of 64.
//
// Weights are on their way to registers PIECES steps ahead, weights and activations come to shared memory one step ahead. Both
// have three places there. Elements of 32 stand in the order that `put_f16x2` gives them.

struct Tiles {
    u64 w;
    u64 start[4];
    u64 x, scales, add, y;
    i64 add_row, y_row;  // bytes from row to row; `add_row` 0 for one row that all share
    int m, n, k;
    int fresh;           // the kernel before writes the weights
    u64 sorted;          // of experts, which `groups.cu` computes
    int tiles, shared;
};

#define BM 128
#define BN 128
#define BK 64                     // elements of a tile's row: 128 bytes
#define STEP 128                  // elements of a step: two tiles
#define THREADS 512
#define FLOATS (WTYPE == F32 || WTYPE == F16 || WTYPE == BF16)
#define SIGNED (WTYPE == Q8_0 || WTYPE == IQ4_NL || WTYPE == IQ4_XS || WTYPE == MXFP4)
#define TILE (BM * BK * 2)        // bytes
#define STAGE (2 * TILE)
#define PIECES 2

extern __shared__ uint4 memory[];

u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

// 16 bytes of a tile's row: chunks are exchanged so that eight rows of one column lie in different banks.
u32 swizzled(int row, int chunk) { return row * (BK * 2) + ((chunk ^ (row & 7)) * 16); }

void copy_async(u32 to, u64 from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0));
}

void load_matrix(u32* r, u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

void multiply(float* c, const u32* a, const u32* b) {
#if WTYPE == BF16
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#endif
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// What a thread brings of the weights: 32 elements of a row.
struct Piece {
#if FLOATS
    uint4 raw[4];
#else
    Raw<WTYPE> raw;
#endif
};

void load_piece(Piece& piece, const Planes& planes, u32 group) {
#if FLOATS
    for (int i = 0; i < 4; i++) piece.raw[i] = __ldg((const uint4*)planes.at[0] + (u64)group * 4 + i);
#else
    load_group<WTYPE>(piece.raw, planes, group);
#endif
}

// Puts a piece at a place of a tile's row.
void store_piece(const Piece& piece, bool inside, u8* tile, int row, int half) {
    uint4 out[4];
    if (!inside) {
        for (int i = 0; i < 4; i++) out[i] = make_uint4(0, 0, 0, 0);
    } else {
        u32 pairs[16];
#if FLOATS
        for (int i = 0; i < 4; i++) {
            pairs[4 * i] = piece.raw[i].x;
            pairs[4 * i + 1] = piece.raw[i].y;
            pairs[4 * i + 2] = piece.raw[i].z;
            pairs[4 * i + 3] = piece.raw[i].w;
        }
#else
        Group g;
        open_group<WTYPE>(piece.raw, g);
        for (int i = 0; i < 8; i++) {
            float f = g.factor[i / 4], a = g.added[i / 4];
            u32 factor = floats_to_f16x2(f, f), added = floats_to_f16x2(a, a), low, high;
            codes_to_f16x2<SIGNED>(g.code[i], &low, &high);
            pairs[2 * i] = fused_f16x2(low, factor, added);
            pairs[2 * i + 1] = fused_f16x2(high, factor, added);
        }
#endif
        for (int i = 0; i < 4; i++) out[i] = make_uint4(pairs[i], pairs[4 + i], pairs[8 + i], pairs[12 + i]);
    }
    for (int i = 0; i < 4; i++) *(uint4*)(tile + swizzled(row, half * 4 + i)) = out[i];
}

extern "C" __global__ void __launch_bounds__(THREADS) tile_product(const __grid_constant__ Tiles t) {
    let_others_begin();
    if (t.fresh) wait_for_others();
    u8* left = (u8*)(((u64)memory + 1023) & ~1023ull);  // three stages of weights
    u8* right = left + 3 * STAGE;                       // three of activations
    int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    int i0 = blockIdx.x * BM, j0 = blockIdx.y * BN, steps = (t.k + STEP - 1) / STEP, groups = t.k / 32;

    // The thread's share of the weights: a quarter of a row. Neighbours have neighbouring rows, whose places lie in different
    // banks.
    int row = thread % BM, quarter = thread / BM;
    Planes planes = planes_of(t.w, t.start);
    bool row_inside = i0 + row < t.m;
    u32 first_group = (u32)min(i0 + row, t.m - 1) * groups;
    Piece pieces[PIECES];
    auto load_left = [&](Piece& piece, int step) { load_piece(piece, planes, first_group + min(step * 4 + quarter, groups - 1)); };
    auto store_left = [&](const Piece& piece, int step) {
        u8* tile = left + step % 3 * STAGE + quarter / 2 * TILE;
        store_piece(piece, row_inside && step * 4 + quarter < groups, tile, row, quarter % 2);
    };
    // And of the activations: 16 bytes of every 32nd row.
    int chunk = thread % 16, line = thread / 16;
    u64 from[4];
    u32 to = swizzled(line, chunk % 8) + chunk / 8 * TILE;
    for (int i = 0; i < 4; i++) from[i] = t.x + ((i64)min(j0 + line + 32 * i, t.n - 1) * t.k + chunk * 8) * 2;
    auto load_right = [&](int step) {
        bool fits = step * STEP + chunk * 8 < t.k;
        u32 place = shared_address(right + step % 3 * STAGE) + to;
        if (step < steps)
            for (int i = 0; i < 4; i++)
                copy_async(place + i * 32 * BK * 2, fits ? from[i] + step * (STEP * 2) : t.x, fits && j0 + line + 32 * i < t.n);
        asm volatile("cp.async.commit_group;");
    };

    float sums[2][4][4] = {};
    int wm = warp % 4 * 32, wn = warp / 4 * 32;
#pragma unroll
    for (int p = 0; p < PIECES; p++)
        if (p < steps) load_left(pieces[p], p);
    wait_for_others();
    load_right(0);
    store_left(pieces[0], 0);
    if (PIECES < steps) load_left(pieces[0], PIECES);
    for (int first = 0; first < steps; first += PIECES) {
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            int step = first + p;
            if (step >= steps) break;
            asm volatile("cp.async.wait_group 0;");
            __syncthreads();
            u32 a_tile = shared_address(left + step % 3 * STAGE), b_tile = shared_address(right + step % 3 * STAGE);
            // A thread that is here knows that all have done with the step before the last, whose places are taken now.
            load_right(step + 1);
            Piece& next = pieces[(p + 1) % PIECES];
            if (step + 1 < steps) store_left(next, step + 1);
            if (step + 1 + PIECES < steps) load_left(next, step + 1 + PIECES);
            for (int k = 0; k < STEP / 16; k++) {
                u32 a[2][4], b[2][4], tile = k / 4 * TILE;
                for (int m = 0; m < 2; m++) load_matrix(a[m], a_tile + tile + swizzled(wm + m * 16 + lane % 16, k % 4 * 2 + lane / 16));
                for (int n = 0; n < 2; n++)
                    load_matrix(b[n], b_tile + tile + swizzled(wn + n * 16 + lane % 8 + lane / 16 * 8, k % 4 * 2 + lane / 8 % 2));
                for (int m = 0; m < 2; m++)
                    for (int n = 0; n < 4; n++) multiply(sums[m][n], a[m], b[n / 2] + n % 2 * 2);
            }
        }
    }
    auto put = [&](int line, int column, float sum, float scale) {
        if (line >= t.m) return;
        sum *= scale;
        if (t.add) sum += *(const float*)(t.add + column * t.add_row + line * 4);
        *(float*)(t.y + column * t.y_row + line * 4) = sum;
    };
#pragma unroll
    for (int n = 0; n < 4; n++) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            int column = j0 + wn + n * 8 + lane % 4 * 2 + c;
            if (column >= t.n) continue;
            float scale = ((const float*)t.scales)[column];
#pragma unroll
            for (int m = 0; m < 2; m++)
#pragma unroll
                for (int r = 0; r < 2; r++) put(i0 + wm + m * 16 + r * 8 + lane / 4, column, sums[m][n][r * 2 + c], scale);
        }
    }
}
