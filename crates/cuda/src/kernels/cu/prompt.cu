// Attention of many tokens, on tensor cores: 64 queries of a head of HEAD elements a block, ROWS rows of keys and values
// at a time. Those are F16, or become F16 on their way from blocks of KVTYPE in shared memory to tiles.
//
// With PAGE, rows lie in pages of PAGE rows. Queries of a block may then be of several sequences: it takes one run of tokens
// after the other, to which the other queries see nothing.

struct Prompt {
    u64 q, k, v, seen, sinks, y;
    i64 q_token, q_head, k_row, k_head, v_row, v_head, y_token;  // bytes
    int tokens, heads, kv_heads, kv, step;
    float scale, cap;
    int window;  // 0, or how many rows a query sees
    u64 marks;
    Pages pages;
};

#define QUERIES 64
#define ROWS (HEAD <= 128 ? 64 : 32)
#define CHUNKS (HEAD / 8)
// Eight rows of one column lie in different banks: rows are a little apart, or where they are whole lines of all banks, their
// chunks are exchanged.
#define SWIZZLED (HEAD % 64 == 0)
#define PITCH (HEAD * 2 + (SWIZZLED ? 0 : 16))
#define TILE (ROWS * PITCH)
// Tiles of keys and values, and as many for the rows that come next, which are F16 or in blocks.
#if IN_BLOCKS
#define NEXT (ROWS * ROW_BYTES)
#endif
static_assert(PAGE % ROWS == 0, "rows at a time lie in one page");

extern __shared__ uint4 memory[];

#if IN_BLOCKS
// Eight elements of a row in blocks as F16.
uint4 eight_of(u32 row, int chunk) {
    u32 block = row + chunk / 4 * BLOCK_BYTES, codes[2], y[4];
    u32 scale = scale_at(block) * 0x10001, added = 0;
#if KVTYPE == Q8_0
    words_at<2>(block + CODES_AT + chunk % 4 * 8, codes);
#else
    words_at<2>(block + CODES_AT + chunk % 2 * 8, codes);
    for (int i = 0; i < 2; i++) codes[i] = codes[i] >> chunk % 4 / 2 * 4 & 0x0f0f0f0f;
    added = fused_f16x2(scale, 0xc800c800, 0);  // -8
    static_assert(Q4_0_BIAS == 8, "what is added");
#endif
    for (int i = 0; i < 2; i++) codes_to_f16x2<KVTYPE == Q8_0>(codes[i], y + 2 * i, y + 2 * i + 1);
    for (int i = 0; i < 4; i++) y[i] = fused_f16x2(y[i], scale, added);
    return make_uint4(y[0], y[1], y[2], y[3]);
}
#endif

u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }
u32 place(int row, int chunk) { return row * PITCH + (SWIZZLED ? chunk ^ (row & 7) : chunk) * 16; }

void load_matrix(u32* r, u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
void load_transposed(u32* r, u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
void multiply(float* c, const u32* a, const u32* b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Attention of queries `from` to `to` of the 64 from `first` on.
void attend(const Prompt& t, int first, int from, int to) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, head = blockIdx.y;
    int kv_head = head / (t.heads / t.kv_heads), limit = PAGE ? t.pages.each * PAGE : t.kv;
    u8* base = (u8*)memory;  // tiles of keys and values, then those that come next; the queries begin in the first

    __shared__ int least, most;
    __syncthreads();
    if (threadIdx.x == 0) {
        least = limit;
        most = 0;
    }
    __syncthreads();
#if PAGE
    int sequence = ((const int*)t.pages.sequences)[first + from];
    bool known = sequence >= 0 && sequence < t.pages.count;
#endif
    // A lane's two queries, and what they see.
    int query[2], unseen[2], seen[2];
    for (int r = 0; r < 2; r++) {
        query[r] = warp * 16 + r * 8 + lane / 4;
        int length = query[r] >= from && query[r] < to ? ((const int*)t.seen)[first + query[r]] : 0;
        if (length < 0 || length > limit) {
            mark(t.marks, t.step, length, limit);
            length = 0;
        }
#if PAGE
        if (length && !known) {
            mark(t.marks, t.step, sequence, t.pages.count);
            length = 0;
        }
#endif
        seen[r] = length;
        unseen[r] = t.window ? max(length - t.window, 0) : 0;
        atomicMax(&most, length);
        if (length) atomicMin(&least, unseen[r]);
    }

    // Queries as F16, by way of shared memory.
    for (int i = threadIdx.x; i < QUERIES * CHUNKS; i += blockDim.x) {
        int row = i / CHUNKS, chunk = i % CHUNKS;
        uint4 f16 = make_uint4(0, 0, 0, 0);
        if (first + row < t.tokens) {
            const float4* x = (const float4*)(t.q + (i64)(first + row) * t.q_token + head * t.q_head) + chunk * 2;
            float4 a = x[0], b = x[1];
            f16 = make_uint4(floats_to_f16x2(a.x * t.scale, a.y * t.scale), floats_to_f16x2(a.z * t.scale, a.w * t.scale),
                             floats_to_f16x2(b.x * t.scale, b.y * t.scale), floats_to_f16x2(b.z * t.scale, b.w * t.scale));
        }
        *(uint4*)(base + place(row, chunk)) = f16;
    }
    __syncthreads();
    u32 q[HEAD / 16][4];
    for (int k = 0; k < HEAD / 16; k++)
        load_matrix(q[k], shared_address(base) + place(warp * 16 + lane % 16, k * 2 + lane / 16));
    __syncthreads();

    int begin = least / ROWS, tiles = (most + ROWS - 1) / ROWS;
    // Where a tile's rows begin, -1 where that is nowhere: an error only if one of them is seen.
    auto place_of = [&](int tile) {
        if (tile >= tiles) return -1;
        int row = tile * ROWS;
#if PAGE
        int page = ((const int*)(t.pages.ids + sequence * t.pages.stride))[row / PAGE];
        if (page < 0 || page >= t.pages.total) {
            for (int r = 0; r < 2; r++)
                if (row < seen[r] && row + ROWS > unseen[r]) mark(t.marks, t.step, page, t.pages.total);
            return -1;
        }
        return page * PAGE + row % PAGE;
#else
        return row;
#endif
    };
#if IN_BLOCKS
    // Rows as they are, behind the tiles, two times ahead; and from there into tiles.
    auto load = [&](int tile, int stage, int from_row) {
        u32 to = shared_address(base) + 2 * TILE + stage * 2 * NEXT;
        int bytes = from_row < 0 ? 0 : min(most - tile * ROWS, ROWS) * ROW_BYTES;
        for (int i = threadIdx.x * 16; i < NEXT; i += blockDim.x * 16) {
            int size = min(max(bytes - i, 0), 16);
            i64 from = kv_head * t.k_head + (i64)max(from_row, 0) * ROW_BYTES + i;
            copy_piece(to + i, size ? t.k + from : t.k, size);
            copy_piece(to + NEXT + i, size ? t.v + from + kv_head * (t.v_head - t.k_head) : t.v, size);
        }
        asm volatile("cp.async.commit_group;");
    };
    auto open = [&](int stage) {
        for (int i = threadIdx.x; i < 2 * ROWS * CHUNKS; i += blockDim.x) {
            int row = i / CHUNKS, chunk = i % CHUNKS;
            *(uint4*)(base + row / ROWS * TILE + place(row % ROWS, chunk)) = eight_of(2 * TILE + stage * 2 * NEXT + row * ROW_BYTES, chunk);
        }
        __syncthreads();
    };
#else
    auto load = [&](int tile, int stage, int from_row) {
        for (int i = threadIdx.x; i < ROWS * CHUNKS; i += blockDim.x) {
            int row = i / CHUNKS, chunk = i % CHUNKS;
            bool inside = tile * ROWS + row < most && from_row >= 0;
            i64 at = inside ? from_row + row : 0;
            u64 k = t.k + at * t.k_row + kv_head * t.k_head + chunk * 16;
            u64 v = t.v + at * t.v_row + kv_head * t.v_head + chunk * 16;
            u32 to = shared_address(base + stage * 2 * TILE) + place(row, chunk);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(k), "r"(inside ? 16 : 0));
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + TILE), "l"(v), "r"(inside ? 16 : 0));
        }
        asm volatile("cp.async.commit_group;");
    };
#endif
    float sums[HEAD / 8][4] = {}, largest[2] = {-INFINITE, -INFINITE}, total[2] = {0.0f, 0.0f};
    if (begin < tiles) load(begin, begin & 1, place_of(begin));
    int next_place = place_of(begin + 1);
    for (int tile = begin; tile < tiles; tile++) {
        asm volatile("cp.async.wait_group 0;");
        __syncthreads();
        if (tile + 1 < tiles) load(tile + 1, (tile + 1) & 1, next_place);
        next_place = place_of(tile + 2);
#if IN_BLOCKS
        open(tile & 1);
        u32 keys = shared_address(base), values = keys + TILE;
#else
        u32 keys = shared_address(base + (tile & 1) * 2 * TILE), values = keys + TILE;
#endif
        float scores[ROWS / 8][4] = {};
        for (int k = 0; k < HEAD / 16; k++)
            for (int n = 0; n < ROWS / 16; n++) {
                u32 b[4];
                load_matrix(b, keys + place(n * 16 + lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2));
                multiply(scores[2 * n], q[k], b);
                multiply(scores[2 * n + 1], q[k], b + 2);
            }
        float next[2] = {largest[0], largest[1]};
        for (int n = 0; n < ROWS / 8; n++)
            for (int c = 0; c < 4; c++) {
                int column = tile * ROWS + n * 8 + lane % 4 * 2 + c % 2;
                if (t.cap != 0.0f) scores[n][c] = t.cap * tanhf(scores[n][c] / t.cap);
                if (column >= seen[c / 2] || column < unseen[c / 2]) scores[n][c] = -INFINITE;
                next[c / 2] = fmaxf(next[c / 2], scores[n][c]);
            }
        for (int r = 0; r < 2; r++) {
            next[r] = fmaxf(next[r], __shfl_xor_sync(~0u, next[r], 1));
            next[r] = fmaxf(next[r], __shfl_xor_sync(~0u, next[r], 2));
            float shrink = next[r] == -INFINITE ? 1.0f : __expf(largest[r] - next[r]);
            largest[r] = next[r];
            total[r] *= shrink;
            for (int n = 0; n < HEAD / 8; n++) {
                sums[n][2 * r] *= shrink;
                sums[n][2 * r + 1] *= shrink;
            }
        }
        u32 weights[ROWS / 8][2];
        for (int n = 0; n < ROWS / 8; n++)
            for (int r = 0; r < 2; r++) {
                float a = scores[n][2 * r] == -INFINITE ? 0.0f : __expf(scores[n][2 * r] - largest[r]);
                float b = scores[n][2 * r + 1] == -INFINITE ? 0.0f : __expf(scores[n][2 * r + 1] - largest[r]);
                total[r] += a + b;
                weights[n][r] = floats_to_f16x2(a, b);
            }
        for (int k = 0; k < ROWS / 16; k++) {
            u32 a[4] = {weights[2 * k][0], weights[2 * k][1], weights[2 * k + 1][0], weights[2 * k + 1][1]};
            for (int n = 0; n < HEAD / 16; n++) {
                u32 b[4];
                load_transposed(b, values + place(k * 16 + lane % 16, n * 2 + lane / 16));
                multiply(sums[2 * n], a, b);
                multiply(sums[2 * n + 1], a, b + 2);
            }
        }
    }
    for (int r = 0; r < 2; r++) {
        float all = total[r];
        all += __shfl_xor_sync(~0u, all, 1);
        all += __shfl_xor_sync(~0u, all, 2);
        float shrink = 1.0f;
        if (t.sinks) {
            float sink = ((const float*)t.sinks)[head], next = fmaxf(largest[r], sink);
            shrink = __expf(largest[r] - next);
            all = all * shrink + __expf(sink - next);
        }
        if (query[r] < from || query[r] >= to) continue;
        float factor = all > 0.0f ? shrink / all : 0.0f;
        float* y = (float*)(t.y + (i64)(first + query[r]) * t.y_token) + head * HEAD;
        for (int n = 0; n < HEAD / 8; n++) {
            float2 pair = make_float2(sums[n][2 * r] * factor, sums[n][2 * r + 1] * factor);
            *(float2*)(y + n * 8 + lane % 4 * 2) = pair;
        }
    }
}

// Two blocks a multiprocessor: if there were room for three, they would crowd where the kernel before ends first, and leave
// others idle.
extern "C" __global__ void __launch_bounds__(128, 2) prompt(const __grid_constant__ Prompt t) {
    let_others_begin();
    wait_for_others();
    int first = blockIdx.x * QUERIES, count = min(QUERIES, t.tokens - first);
#if PAGE
    // Runs that are long enough go round the blocks of the grid's last dimension.
    u64 starts = run_starts(t.pages, first, count);
    for (int from = 0, to, turn = 0; from < count; from = to) {
        to = run_end(starts, from, count);
        if (to - from >= t.pages.few && turn++ % gridDim.z == blockIdx.z) attend(t, first, from, to);
    }
#else
    attend(t, first, 0, count);
#endif
}
