// Attention of single tokens: the rows that a token sees, in splits, each computed by a block for GROUP heads that share keys
// and values of HEAD elements of type KVTYPE. How much there is to see is read here, so one program serves all lengths; where
// splits begin depends on that alone, so a token's result is the same in any company.
//
// With PAGE, rows lie in pages of PAGE rows; with MANY, there may be more tokens than one, and those of long runs are left to
// `prompt.cu`. With EARLY, nothing in the program writes what says which rows are seen and where they are. A split has at most
// SPLIT_BLOCKS blocks of rows. This file has what all types share: `attend` is in `decode_floats.cuh`, and for rows in blocks in
// `decode_blocks.cuh`.

struct Decode {
    u64 q, k, v, seen, sinks, y, parts;
    i64 q_token, q_head, k_row, k_head, v_row, v_head;  // bytes
    int heads, kv_heads, kv, splits, step;
    float scale, cap;
    int window;  // 0, or how many rows are seen
    int tokens, beside;  // blocks of the grid's last dimension that share a tile's tokens
    u64 marks;
    Pages pages;
    // The token's own key and value, before they are turned, and the row that they go to.
    u64 new_k, new_v, row;
    i64 new_k_head, new_v_head;
    int wide, gap;
    Turn turn;
};

#define LANES (HEAD / 16)        // of one row
#define WIDE (LANES <= 4 ? 4 : LANES <= 8 ? 8 : 16)  // with those that have nothing of it
#define TOGETHER (32 / WIDE)     // rows of a warp
#define WARPS 8
#define BLOCK 64                 // rows: splits are whole blocks
static_assert(PAGE % BLOCK == 0, "blocks lie in one page each");
static_assert(PAGE || !MANY, "many tokens have pages");
static_assert(!(MANY && ROTATED), "one token is rotated");
static_assert(!EARLY || (IN_BLOCKS && !MANY), "one token of rows in blocks waits by itself");
static_assert(!(IN_BLOCKS && ROTATED), "rows that are rotated here are floats");

// Which element of a row is number `i` of the sixteen that a lane has.
int element_of(int part, int i) {
#if KVTYPE == Q8_0
    return part * 16 + i;
#elif KVTYPE == Q4_0
    return part / 2 * 32 + i / 8 * 16 + part % 2 * 8 + i % 8;
#else
    return (i / 8 * LANES + part) * 8 + i % 8;
#endif
}

// What a token sees: rows from `unseen` to `seen`, in `splits` splits of `length` blocks from block `front` on.
struct Range {
    int seen, unseen, front, length, splits;
    const int* ids;  // of its sequence's pages
};

Range range_of(const Decode& t, int token) {
    Range r;
    bool marks = blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0;
    int most = PAGE ? t.pages.each * PAGE : t.kv;
    r.seen = ((const int*)t.seen)[token];
    r.ids = nullptr;
    if (r.seen < 0 || r.seen > most) {
        if (marks) mark(t.marks, t.step, r.seen, most);
        r.seen = 0;
    }
#if PAGE
    int sequence = ((const int*)t.pages.sequences)[token];
    if (r.seen && (sequence < 0 || sequence >= t.pages.count)) {
        if (marks) mark(t.marks, t.step, sequence, t.pages.count);
        r.seen = 0;
    }
    if (r.seen) r.ids = (const int*)(t.pages.ids + sequence * t.pages.stride);
#endif
    r.unseen = t.window ? max(r.seen - t.window, 0) : 0;
    r.front = r.unseen / BLOCK;
    int blocks = (r.seen + BLOCK - 1) / BLOCK - r.front;
    r.length = max((blocks + t.splits - 1) / t.splits, 1);
    r.splits = max((blocks + r.length - 1) / r.length, 1);
    return r;
}

// Results of splits, for each of the grid's last dimension; behind all of them, the largest score and the sum of weights.
i64 part_of(const Decode& t, int head, int split) { return ((i64)blockIdx.z * t.heads + head) * t.splits + split; }
float* part_sums(const Decode& t, int head, int split) { return (float*)t.parts + part_of(t, head, split) * HEAD; }
float* part_numbers(const Decode& t, int head, int split) {
    return (float*)t.parts + (i64)gridDim.z * t.heads * t.splits * HEAD + 2 * part_of(t, head, split);
}

// One element of a head's result: the splits', weighted.
void combine_splits(const Decode& t, int token, int head, int i, int splits) {
    float next = t.sinks ? ((const float*)t.sinks)[head] : -INFINITE, sum = 0.0f, all = 0.0f;
    for (int s = 0; s < splits; s++) next = fmaxf(next, part_numbers(t, head, s)[0]);
    for (int s = 0; s < splits; s++) {
        const float* numbers = part_numbers(t, head, s);
        if (numbers[0] == -INFINITE) continue;
        float shrink = __expf(numbers[0] - next);
        sum += part_sums(t, head, s)[i] * shrink;
        all += numbers[1] * shrink;
    }
    if (t.sinks) all += __expf(((const float*)t.sinks)[head] - next);
    ((float*)t.y)[((i64)token * t.heads + head) * HEAD + i] = all > 0.0f ? sum / all : 0.0f;
}

// Where a split's blocks of rows lie.
void find_places(const Decode& t, const Range& r, int split, int* places) {
    int front = r.front + split * r.length;
    __syncthreads();
    for (int b = threadIdx.x; b < r.length && (front + b) * BLOCK < r.seen; b += blockDim.x) {
        int row = (front + b) * BLOCK;
#if PAGE
        int page = r.ids[row / PAGE];
        if (page < 0 || page >= t.pages.total) {
            mark(t.marks, t.step, page, t.pages.total);
            page = 0;
        }
        row = page * PAGE + row % PAGE;
#endif
        places[b] = row;
    }
    __syncthreads();
}

// What a lane has of the results of GROUP heads, from the rows that it has seen.
struct Sums {
    float sums[GROUP][16], largest[GROUP], total[GROUP];
};

void clear(Sums& s) {
    for (int h = 0; h < GROUP; h++) {
        for (int i = 0; i < 16; i++) s.sums[h][i] = 0.0f;
        s.largest[h] = -INFINITE;
        s.total[h] = 0.0f;
    }
}

// Lanes with other rows, then warps, come together: a split's result.
void come_together(const Decode& t, int token, const Range& r, int split, Sums& s, float (*shared_sums)[GROUP][HEAD]) {
    __shared__ float shared_largest[WARPS][GROUP], shared_total[WARPS][GROUP];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = lane % WIDE, own = lane / WIDE, first = blockIdx.x * GROUP;
    __syncthreads();
    for (int h = 0; h < GROUP; h++) {
        float next = s.largest[h];
        for (int step = WIDE; step < 32; step *= 2) next = fmaxf(next, __shfl_xor_sync(~0u, next, step));
        float shrink = s.largest[h] == -INFINITE ? 0.0f : __expf(s.largest[h] - next);
        s.total[h] *= shrink;
        for (int step = WIDE; step < 32; step *= 2) s.total[h] += __shfl_xor_sync(~0u, s.total[h], step);
        for (int i = 0; i < 16; i++) {
            s.sums[h][i] *= shrink;
            for (int step = WIDE; step < 32; step *= 2) s.sums[h][i] += __shfl_xor_sync(~0u, s.sums[h][i], step);
            if (own == 0 && part < LANES) shared_sums[warp][h][element_of(part, i)] = s.sums[h][i];
        }
        if (lane == 0) {
            shared_largest[warp][h] = next;
            shared_total[warp][h] = s.total[h];
        }
    }
    __syncthreads();
    for (int n = threadIdx.x; n < GROUP * HEAD; n += blockDim.x) {
        int h = n / HEAD, i = n % HEAD, head = first + h;
        float next = -INFINITE, sum = 0.0f, all = 0.0f;
        for (int w = 0; w < WARPS; w++) next = fmaxf(next, shared_largest[w][h]);
        if (r.splits == 1 && t.sinks) next = fmaxf(next, ((const float*)t.sinks)[head]);
        for (int w = 0; w < WARPS; w++) {
            float shrink = shared_largest[w][h] == -INFINITE ? 0.0f : __expf(shared_largest[w][h] - next);
            sum += shared_sums[w][h][i] * shrink;
            all += shared_total[w][h] * shrink;
        }
        if (r.splits == 1) {
            if (t.sinks) all += __expf(((const float*)t.sinks)[head] - next);
            ((float*)t.y)[((i64)token * t.heads + head) * HEAD + i] = all > 0.0f ? sum / all : 0.0f;
            continue;
        }
        part_sums(t, head, split)[i] = sum;
        if (i == 0) {
            float* numbers = part_numbers(t, head, split);
            numbers[0] = next;
            numbers[1] = all;
        }
    }
}

// A block with all splits of a token puts them together by itself.
void combine_own_splits(const Decode& t, int token, const Range& r) {
    if (gridDim.y > 1 || r.splits == 1) return;
    __syncthreads();
    for (int n = threadIdx.x; n < GROUP * HEAD; n += blockDim.x)
        combine_splits(t, token, blockIdx.x * GROUP + n / HEAD, n % HEAD, r.splits);
}
