// Products of matrices with many rows of activations, on the tensor cores of cards whose warps work in groups of four. Weights
// of one type (WTYPE) are opened to halves in the registers that tensor cores read them from; activations are halves already
// (see `halves`), and come to shared memory two steps ahead. 128 x 128 results a block, 64 x 128 a group of warps, 128 elements
// at a time.
//
// Of 32 elements of a row, the four lanes of a quad have eight each. Weights in blocks are opened by one lane a block, four
// blocks of a row by a quad at a time, and then go round.

struct Tiles {
    u64 w;
    u64 start[4];
    u64 x, scales, add, y;
    i64 add_row, y_row;  // bytes from row to row; `add_row` 0 for one row that all share
    int m, n, k;
    int fresh;           // the kernel before writes the weights
};

#define BM 128
#define BN 128
#define STEP 128                  // elements of a step: two tiles of 64, whose rows are 128 bytes
#define THREADS 256
#define STAGES 4
#define TILE (BN * 128)           // bytes
#define STAGE (2 * TILE)
#define FLOATS (WTYPE == F16 || WTYPE == BF16)
#define SIGNED (WTYPE == Q8_0 || WTYPE == IQ4_NL || WTYPE == IQ4_XS || WTYPE == MXFP4)
#define HALVES_DIFFER (WTYPE == Q6_K || WTYPE == Q2_K || WTYPE == Q3_K)

#if WTYPE == BF16
#define HALF_TYPE "bf16"
#else
#define HALF_TYPE "f16"
#endif

extern __shared__ uint4 memory[];

u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

// 16 bytes of a tile's row: chunks are exchanged so that eight rows of one column lie in different banks.
u32 swizzled(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) * 16); }

void copy_async(u32 to, u64 from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0));
}

// A tile whose rows are swizzled, as tensor cores are told of it: address, distance of groups of eight rows, kind of swizzle.
u64 described(u32 at) { return (u64)(at >> 4 & 0x3fff) | (u64)1 << 16 | (u64)64 << 32 | (u64)1 << 62; }

// 64 x 128 sums of a group of four warps, 16 elements further, or if there are no `more` before these, the first.
void multiply(float* c, const u32* a, u64 b, int more) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32." HALF_TYPE "." HALF_TYPE " {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
          "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
          "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),
          "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]),
          "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]),
          "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]),
          "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]),
          "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more));
}

// What a lane brings of a row for a step: its eight of every 32 elements, or one block of 32 of four.
struct Piece {
#if FLOATS
    uint4 raw[4];
#else
    Raw<WTYPE> raw;
#endif
};

// A row's elements for a step as they go round a quad: of every 32, a lane's eight.
struct Row {
#if FLOATS
    uint4 eight[4];
#else
    u32 first[4], second[4];  // codes of four elements each
    u32 scale[4];             // two halves: factor, added
#endif
};

void load_piece(Piece& piece, const Planes& planes, u32 row_groups, int step, int groups) {
    int four = threadIdx.x % 4;
#if FLOATS
#pragma unroll
    for (int g = 0; g < 4; g++)
        piece.raw[g] = __ldg((const uint4*)planes.at[0] + (u64)(row_groups + min(step * 4 + g, groups - 1)) * 4 + four);
#else
    load_group<WTYPE>(piece.raw, planes, row_groups + min(step * 4 + four, groups - 1));
#endif
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

void open_row(const Piece& piece, Row& row) {
#if FLOATS
#pragma unroll
    for (int g = 0; g < 4; g++) row.eight[g] = piece.raw[g];
#else
    Group g;
    open_group<WTYPE>(piece.raw, g);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        row.first[i] = g.code[2 * i];
        row.second[i] = g.code[2 * i + 1];
    }
    go_round(row.first);
    go_round(row.second);
    u32 scales[2] = {floats_to_halves(g.factor[0], g.added[0]), floats_to_halves(g.factor[1], g.added[1])};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        row.scale[i] = __shfl_sync(~0u, scales[0], i, 4);
#if HALVES_DIFFER
        u32 other = __shfl_sync(~0u, scales[1], i, 4);
        if (threadIdx.x & 2) row.scale[i] = other;
#endif
    }
#endif
}

// Eight elements of a row, as two times two registers: for the first and the second 16 of 32.
void halves_of(const Row& row, int g, u32* first, u32* second) {
#if FLOATS
    first[0] = row.eight[g].x; first[1] = row.eight[g].y;
    second[0] = row.eight[g].z; second[1] = row.eight[g].w;
#else
    u32 factor = __byte_perm(row.scale[g], 0, 0x1010), added = __byte_perm(row.scale[g], 0, 0x3232), low, high;
    codes_to_halves<SIGNED>(row.first[g], &low, &high);
    first[0] = fused_halves(low, factor, added);
    first[1] = fused_halves(high, factor, added);
    codes_to_halves<SIGNED>(row.second[g], &low, &high);
    second[0] = fused_halves(low, factor, added);
    second[1] = fused_halves(high, factor, added);
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS) tile_product(const __grid_constant__ Tiles t) {
    let_others_begin();
    if (t.fresh) wait_for_others();
    u8* right = (u8*)(((u64)memory + 1023) & ~1023ull);
    int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    int i0 = blockIdx.x * BM + warp * 16 + lane / 4, j0 = blockIdx.y * BN;
    int steps = (t.k + STEP - 1) / STEP, groups = t.k / 32;

    Planes planes = planes_of(t.w, t.start);
    const u32 rows[2] = {(u32)min(i0, t.m - 1) * groups, (u32)min(i0 + 8, t.m - 1) * groups};
    Piece pieces[2];
    Row row[2];
#pragma unroll
    for (int r = 0; r < 2; r++) load_piece(pieces[r], planes, rows[r], 0, groups);
    auto open_rows = [&](int step) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            open_row(pieces[r], row[r]);
            load_piece(pieces[r], planes, rows[r], step + 1, groups);
        }
    };

    // The thread's share of the activations: 16 bytes of every 16th row.
    int chunk = thread % 16, line = thread / 16;
    u32 to = shared_address(right) + swizzled(line, chunk % 8) + chunk / 8 * TILE;
    u64 from = t.x + ((i64)(j0 + line) * t.k + chunk * 8) * 2;
    auto load_right = [&](int step) {
        bool fits = step * STEP + chunk * 8 < t.k;
        if (step < steps)
#pragma unroll
            for (int i = 0; i < BN / 16; i++) {
                bool inside = fits && j0 + line + 16 * i < t.n;
                copy_async(to + step % STAGES * STAGE + i * 16 * 128, inside ? from + ((i64)i * 16 * t.k + step * STEP) * 2 : t.x, inside);
            }
        asm volatile("cp.async.commit_group;");
    };
    wait_for_others();
    load_right(0);
    load_right(1);
    open_rows(0);

    float sums[64];  // the first products take no sums in
    for (int step = 0; step < steps; step++) {
        asm volatile("cp.async.wait_group 1;");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        // Whoever is here has done with the step before the last, whose place is taken next.
        __syncthreads();
        load_right(step + 2);
        u64 b = described(shared_address(right + step % STAGES * STAGE));
#pragma unroll
        for (int g = 0; g < 4; g++) {
            // These are opened while the ones before are multiplied.
            u32 a[2][4];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                u32 first[2], second[2];
                halves_of(row[r], g, first, second);
                a[0][r] = first[0];
                a[0][2 + r] = first[1];
                a[1][r] = second[0];
                a[1][2 + r] = second[1];
            }
            if (g) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int half = 0; half < 2; half++)
                multiply(sums, a[half], b + g / 2 * (TILE >> 4) + (g % 2 * 2 + half) * 2, step + g + half);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        }
        open_rows(step + 1);
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
#pragma unroll
    for (int i = 0; i < 64; i += 4) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            int column = j0 + i * 2 + lane % 4 * 2 + c;
            if (column >= t.n) continue;
            float scale = ((const float*)t.scales)[column];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int place = i0 + 8 * r;
                if (place >= t.m) continue;
                float sum = sums[i + 2 * r + c] * scale;
                if (t.add) sum += *(const float*)(t.add + column * t.add_row + place * 4);
                *(float*)(t.y + column * t.y_row + place * 4) = sum;
            }
        }
    }
}
