// Products of matrices with rows of activations, on the tensor cores of GPUs whose warps work in groups of four. Weights of
// one type (WTYPE) are dequantized to F16 in the registers that tensor cores read them from; activations are F16 already
// (see `round_to_f16`), and come to shared memory two steps ahead. 128 x BN results a block, 64 x BN a group of warps, 128 elements
// at a time.
//
// Of 32 elements of a row, the four lanes of a quad have eight each. Weights in blocks are opened by one lane a block, four
// blocks of a row by a quad at a time, and then go round.
//
// Few results are few blocks: with SPLIT, a cluster of that many blocks computes them, each from a part of the elements, and in
// the end they add up what is in their shared memories. With EXPERTS, a block's columns are the rows of activations that have
// chosen one expert, in the order of `sort` (see `experts.cu`).

struct Tiles {
    u64 w;
    u64 start[4];
    u64 x, scales, add, y;
    i64 add_row, y_row;  // bytes from row to row; `add_row` 0 for one row that all share
    int m, n, k;
    int fresh;           // the kernel before writes the weights
    u64 sorted;          // of experts: what `sort` has written
    int tiles, shared;   // most tiles there; places in a row that have the same activations
};

#define BM 128
#define STEP 128                  // elements of a step: two tiles of 64, whose rows are 128 bytes
#define THREADS 256
#define STAGES 4
#define TILE (BN * 128)           // bytes
#define STAGE (2 * TILE)
#define FLOATS (WTYPE == F16 || WTYPE == BF16)
#define PIECES (FLOATS || BN > 64 ? 1 : 2)  // steps that weights are ahead
#define APART (BM + 4)            // sums of a column in shared memory
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

// 64 x BN sums of a group of four warps, 16 elements further, or if there are no `more` before these, the first.
#define OUT8(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
#define MULTIPLY(n, more, sums, rest) \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " more ", 0;\nwgmma.mma_async.sync.aligned.m64n" n "k16.f32." HALF_TYPE "." HALF_TYPE \
    " {" sums "}, " rest ", p, 1, 1, 0;\n}"
#define IN "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more)
void multiply(float* c, const u32* a, u64 b, int more) {
#if BN == 16
    asm volatile(MULTIPLY("16", "%13",
    "%0, %1, %2, %3, %4, %5, %6, %7",
    "{%8, %9, %10, %11}, %12")
        : OUT8(0) : IN);
#elif BN == 32
    asm volatile(MULTIPLY("32", "%21",
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15",
    "{%16, %17, %18, %19}, %20")
        : OUT8(0), OUT8(8) : IN);
#elif BN == 64
    asm volatile(MULTIPLY("64", "%37",
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31",
    "{%32, %33, %34, %35}, %36")
        : OUT8(0), OUT8(8), OUT8(16), OUT8(24) : IN);
#elif BN == 128
    asm volatile(MULTIPLY("128", "%69",
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63",
    "{%64, %65, %66, %67}, %68")
        : OUT8(0), OUT8(8), OUT8(16), OUT8(24), OUT8(32), OUT8(40), OUT8(48), OUT8(56) : IN);
#endif
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
    u32 scale[4];             // two F16: factor, added
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
    u32 scales[2] = {floats_to_f16x2(g.factor[0], g.added[0]), floats_to_f16x2(g.factor[1], g.added[1])};
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
void f16x2_of(const Row& row, int g, u32* first, u32* second) {
#if FLOATS
    first[0] = row.eight[g].x; first[1] = row.eight[g].y;
    second[0] = row.eight[g].z; second[1] = row.eight[g].w;
#else
    u32 factor = __byte_perm(row.scale[g], 0, 0x1010), added = __byte_perm(row.scale[g], 0, 0x3232), low, high;
    codes_to_f16x2<SIGNED>(row.first[g], &low, &high);
    first[0] = fused_f16x2(low, factor, added);
    first[1] = fused_f16x2(high, factor, added);
    codes_to_f16x2<SIGNED>(row.second[g], &low, &high);
    second[0] = fused_f16x2(low, factor, added);
    second[1] = fused_f16x2(high, factor, added);
#endif
}

void cluster_meets() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// A number in the shared memory of a block of the cluster.
float number_of(u32 at, int block) {
    u32 there;
    float x;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(there) : "memory");
    return x;
}

#if SPLIT > 1
#define CLUSTER __cluster_dims__(1, 1, SPLIT)
#else
#define CLUSTER
#endif
extern "C" __global__ void CLUSTER __launch_bounds__(THREADS, BN <= 64 ? 2 : 1) tile_product(const __grid_constant__ Tiles t) {
    let_others_begin();
    if (t.fresh || EXPERTS) wait_for_others();
    u8* right = (u8*)(((u64)memory + 1023) & ~1023ull);
    int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    int i0 = blockIdx.x * BM + warp * 16 + lane / 4, j0 = blockIdx.y * BN, columns = t.n;
    int all = (t.k + STEP - 1) / STEP, groups = t.k / 32, each = (all + SPLIT - 1) / SPLIT;
    int begin = blockIdx.z * each, steps = max(min(all - begin, each), 0);
    u32 first_row = 0;
    const u32* order = nullptr;
#if EXPERTS
    if ((int)blockIdx.y >= *(const int*)t.sorted) return;
    int4 tile = ((const int4*)t.sorted)[1 + blockIdx.y];
    first_row = (u32)tile.x * t.m;
    order = (const u32*)((const int4*)t.sorted + 1 + t.tiles) + tile.y;
    j0 = 0;
    columns = tile.z;
    // Of no expert: what it makes of a token is 0.
    if (tile.x < 0) {
        for (int e = thread; e < BM * columns; e += THREADS) {
            int place = blockIdx.x * BM + e % BM;
            if (place < t.m) *(float*)(t.y + order[e / BM] * t.y_row + place * 4) = 0.0f;
        }
        return;
    }
#endif
    // Where a column's activations are, and its results.
    auto source = [&](int column) { return EXPERTS ? order[column] / t.shared : (u32)column; };
    auto target = [&](int column) { return EXPERTS ? order[column] : (u32)column; };

    Planes planes = planes_of(t.w, t.start);
    const u32 rows[2] = {(first_row + min(i0, t.m - 1)) * groups, (first_row + min(i0 + 8, t.m - 1)) * groups};
    Piece pieces[PIECES][2];
    Row row[2];
    auto load_rows = [&](int p, int step) {
#pragma unroll
        for (int r = 0; r < 2; r++) load_piece(pieces[p][r], planes, rows[r], begin + step, groups);
    };
    auto open_rows = [&](int p, int step) {
#pragma unroll
        for (int r = 0; r < 2; r++) open_row(pieces[p][r], row[r]);
        load_rows(p, step + PIECES);
    };
#pragma unroll
    for (int p = 0; p < PIECES; p++) load_rows(p, p);

    // The thread's share of the activations: 16 bytes of every 16th row.
    int chunk = thread % 16, line = thread / 16;
    u32 to = shared_address(right) + swizzled(line, chunk % 8) + chunk / 8 * TILE;
    wait_for_others();
    u32 from[BN / 16];
#pragma unroll
    for (int i = 0; i < BN / 16; i++) from[i] = source(min(j0 + line + 16 * i, columns - 1));
    auto load_right = [&](int step) {
        int element = (begin + step) * STEP + chunk * 8;
        if (step < steps)
#pragma unroll
            for (int i = 0; i < BN / 16; i++) {
                bool inside = element < t.k && j0 + line + 16 * i < columns;
                copy_async(to + step % STAGES * STAGE + i * 16 * 128, inside ? t.x + ((i64)from[i] * t.k + element) * 2 : t.x, inside);
            }
        asm volatile("cp.async.commit_group;");
    };
    load_right(0);
    load_right(1);
    open_rows(0, 0);

    float sums[BN / 2];  // the first products take no sums in
    if (SPLIT > 1 && steps == 0)
        for (int i = 0; i < BN / 2; i++) sums[i] = 0.0f;
    for (int first = 0; first < steps; first += PIECES) {
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            int step = first + p;
            if (step >= steps) break;
            asm volatile("cp.async.wait_group 1;");
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            // A thread that is here has done with the step before the last, whose place is taken next.
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
                    f16x2_of(row[r], g, first, second);
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
            open_rows((p + 1) % PIECES, step + 1);
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        }
    }
    auto put = [&](int place, int column, float sum) {
        if (place >= t.m || column >= columns) return;
        sum *= ((const float*)t.scales)[source(column)];
        u32 row = target(column);
        if (t.add) sum += *(const float*)(t.add + row * t.add_row + place * 4);
        *(float*)(t.y + row * t.y_row + place * 4) = sum;
    };
#if SPLIT > 1
    asm volatile("cp.async.wait_group 0;");
    __syncthreads();
    float* own = (float*)right;
#pragma unroll
    for (int i = 0; i < BN / 2; i++)
        own[(i / 4 * 8 + lane % 4 * 2 + i % 2) * APART + warp * 16 + lane / 4 + i / 2 % 2 * 8] = sums[i];
    cluster_meets();
    for (int e = blockIdx.z * THREADS + thread; e < BM * BN; e += SPLIT * THREADS) {
        int place = e % BM, column = e / BM;
        float sum = 0.0f;
#pragma unroll
        for (int block = 0; block < SPLIT; block++) sum += number_of(shared_address(own + column * APART + place), block);
        put(blockIdx.x * BM + place, j0 + column, sum);
    }
    // What others still read stays until they have done.
    cluster_meets();
#else
#pragma unroll
    for (int i = 0; i < BN / 2; i++) put(i0 + i / 2 % 2 * 8, j0 + i / 4 * 8 + lane % 4 * 2 + i % 2, sums[i]);
#endif
}
