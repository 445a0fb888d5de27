// Attention of single tokens: the rows that a token sees, in splits, each computed by a block for GROUP heads that share keys
// and values of HEAD elements of type KVTYPE. How much there is to see is read here, so one program serves all lengths; where
// splits begin depends on that alone, so a token's result is the same in any company.
//
// With PAGE, rows lie in pages of PAGE rows; with MANY, there may be more tokens than one, and those of long runs are left to
// `prompt.cu`. A split has at most SPLIT_BLOCKS blocks of rows.
//
// With ROTATED, the token's own heads come as they left their products: every block turns the queries and the key it needs,
// and one of those that share a key and a value writes them to the cache. The others do not wait for that: whoever comes to
// that row takes what it has turned itself.

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

// 8 elements as they are in memory.
struct Eight {
    uint4 raw[KVTYPE == F32 ? 2 : 1];
};

void load8(Eight& x, u64 at) {
    for (int i = 0; i < (KVTYPE == F32 ? 2 : 1); i++) x.raw[i] = ((const uint4*)at)[i];
}

void open8(const Eight& from, float* x) {
#if KVTYPE == F32
    const u32 words[8] = {from.raw[0].x, from.raw[0].y, from.raw[0].z, from.raw[0].w,
                          from.raw[1].x, from.raw[1].y, from.raw[1].z, from.raw[1].w};
    for (int i = 0; i < 8; i++) x[i] = __uint_as_float(words[i]);
#else
    u32 words[4] = {from.raw[0].x, from.raw[0].y, from.raw[0].z, from.raw[0].w};
    for (int i = 0; i < 4; i++) {
        x[2 * i] = KVTYPE == F16 ? half_to_float((u16)words[i]) : bfloat_to_float((u16)words[i]);
        x[2 * i + 1] = KVTYPE == F16 ? half_to_float((u16)(words[i] >> 16)) : bfloat_to_float((u16)(words[i] >> 16));
    }
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

void attend(const Decode& t, int token) {
    const int size = KVTYPE == F32 ? 4 : 2;
    int per_kv = t.heads / t.kv_heads, first = blockIdx.x * GROUP, kv_head = first / per_kv;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = lane % WIDE, own = lane / WIDE;
    bool idle = part >= LANES;
#if ROTATED
    // Positions, the row, pages and how much is seen are a graph's inputs, and of the cache only that row is written while it
    // runs: nothing of that need wait for others.
    __shared__ float turns[HEAD / 2][2];
    for (int pair = threadIdx.x; pair < t.turn.dims / 2; pair += blockDim.x)
        turn_of(t.turn, pair, 0, 1, &turns[pair][0], &turns[pair][1]);
    i64 own_row = t.wide ? *(const i64*)t.row : (i64)*(const int*)t.row;
#endif
    const Range r = range_of(t, token);
    int split = blockIdx.y;
    if (split >= r.splits) return;

    Eight k_raw[2], v_raw[2];
    int base, end, loaded = -1;  // rows: the warp's next, the split's end, what registers hold as the cache counts
#if PAGE
    __shared__ int places[SPLIT_BLOCKS];  // of a split's blocks
#endif
    auto load_row = [&](int row) {
#if PAGE
        loaded = places[row / BLOCK - r.front - split * r.length] + row % BLOCK;
#else
        loaded = row;
#endif
        for (int half = 0; half < 2; half++) {
            i64 at = (half * LANES + (idle ? 0 : part)) * 8 * size;
            load8(k_raw[half], t.k + kv_head * t.k_head + (i64)loaded * t.k_row + at);
            load8(v_raw[half], t.v + kv_head * t.v_head + (i64)loaded * t.v_row + at);
        }
    };
    // Goes to the first rows of a split.
    auto open_split = [&]() {
        int front = r.front + split * r.length;
        end = min(r.seen, (front + r.length) * BLOCK);
#if PAGE
        __syncthreads();
        for (int b = threadIdx.x; b < r.length && (front + b) * BLOCK < r.seen; b += blockDim.x) {
            int row = (front + b) * BLOCK, page = r.ids[row / PAGE];
            if (page < 0 || page >= t.pages.total) {
                mark(t.marks, t.step, page, t.pages.total);
                page = 0;
            }
            places[b] = page * PAGE + row % PAGE;
        }
        __syncthreads();
#endif
        base = max(r.unseen, front * BLOCK) + warp * TOGETHER;
        if (base < end) load_row(min(base + own, end - 1));
    };
    open_split();

#if ROTATED
    __shared__ float own_q[GROUP][HEAD];
    __shared__ __align__(16) u8 own_k[HEAD * 4], own_v[HEAD * 4];
    wait_for_others();
    bool writes = blockIdx.y == 0 && first % per_kv == 0;
    if (own_row < -1 || own_row >= t.kv) {
        if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) mark(t.marks, t.step, own_row, t.kv);
        own_row = -1;
    }
    __syncthreads();
    for (int n = threadIdx.x; n < (GROUP + 2) * HEAD; n += blockDim.x) {
        int h = n / HEAD, i = n % HEAD, pairs = t.turn.dims / 2;
        const float* x = h < GROUP ? (const float*)(t.q + (first + h) * t.q_head)
                       : h == GROUP ? (const float*)(t.new_k + kv_head * t.new_k_head) : (const float*)(t.new_v + kv_head * t.new_v_head);
        float value = x[i];
        if (h <= GROUP && i < 2 * pairs) {
            bool ahead = t.turn.mode == ROPE_NORMAL ? i % 2 == 0 : i < pairs;
            int pair = t.turn.mode == ROPE_NORMAL ? i / 2 : i % pairs;
            int other = t.turn.mode == ROPE_NORMAL ? i ^ 1 : ahead ? i + pairs : i - pairs;
            value = ahead ? value * turns[pair][1] - x[other] * turns[pair][0] : x[other] * turns[pair][0] + value * turns[pair][1];
        }
        if (h < GROUP) {
            own_q[h][i] = value;
            continue;
        }
        store_plain(KVTYPE, (u64)((h == GROUP ? own_k : own_v) + i * size), value);
        if (writes && own_row >= 0) {
            u64 at = h == GROUP ? t.k + kv_head * t.k_head + own_row * t.k_row : t.v + kv_head * t.v_head + own_row * t.v_row;
            store_plain(KVTYPE, at + i * size, value);
        }
    }
    __syncthreads();
#endif

    float q[GROUP][16], sums[GROUP][16], largest[GROUP], total[GROUP];
    for (int h = 0; h < GROUP; h++) {
#if ROTATED
        const float* from = own_q[h];
#else
        const float* from = (const float*)(t.q + (i64)token * t.q_token + (first + h) * t.q_head);
#endif
        for (int i = 0; i < 16; i++) q[h][i] = idle ? 0.0f : from[(i / 8 * LANES + part) * 8 + i % 8] * t.scale;
    }
    __shared__ float shared_sums[WARPS][GROUP][HEAD];
    __shared__ float shared_largest[WARPS][GROUP], shared_total[WARPS][GROUP];
    for (int next_split; split < r.splits; split = next_split) {
        for (int h = 0; h < GROUP; h++) {
            for (int i = 0; i < 16; i++) sums[h][i] = 0.0f;
            largest[h] = -INFINITE;
            total[h] = 0.0f;
        }
        while (base < end) {
            bool inside = base + own < end;
            float k[16], v[16];
#if ROTATED
            if (loaded == own_row && !idle)
                for (int half = 0; half < 2; half++) {
                    load8(k_raw[half], (u64)own_k + (half * LANES + part) * 8 * size);
                    load8(v_raw[half], (u64)own_v + (half * LANES + part) * 8 * size);
                }
#endif
            for (int half = 0; half < 2; half++) {
                open8(k_raw[half], k + 8 * half);
                open8(v_raw[half], v + 8 * half);
            }
            base += WARPS * TOGETHER;
            if (base < end) load_row(min(base + own, end - 1));
            for (int h = 0; h < GROUP; h++) {
                float score = 0.0f;
                for (int i = 0; i < 16; i++) score += q[h][i] * k[i];
                // What these lanes have is another's, and may be what was in memory before: not even 0 times that is 0.
                if (idle) score = 0.0f;
                for (int step = 1; step < WIDE; step *= 2) score += __shfl_xor_sync(~0u, score, step);
                if (t.cap != 0.0f) score = t.cap * tanhf(score / t.cap);
                if (!inside) continue;
                float next = fmaxf(largest[h], score), shrink = __expf(largest[h] - next), weight = __expf(score - next);
                largest[h] = next;
                total[h] = total[h] * shrink + weight;
                for (int i = 0; i < 16; i++) sums[h][i] = sums[h][i] * shrink + weight * v[i];
            }
        }
        // The next split's first rows are on their way while this one's results come together.
        int done = split;
        next_split = split + gridDim.y;
        if (next_split < r.splits) {
            split = next_split;
            open_split();
        }
        __syncthreads();

        // Lanes with other rows, then warps, come together.
        for (int h = 0; h < GROUP; h++) {
            float next = largest[h];
            for (int step = WIDE; step < 32; step *= 2) next = fmaxf(next, __shfl_xor_sync(~0u, next, step));
            float shrink = largest[h] == -INFINITE ? 0.0f : __expf(largest[h] - next);
            total[h] *= shrink;
            for (int step = WIDE; step < 32; step *= 2) total[h] += __shfl_xor_sync(~0u, total[h], step);
            for (int i = 0; i < 16; i++) {
                sums[h][i] *= shrink;
                for (int step = WIDE; step < 32; step *= 2) sums[h][i] += __shfl_xor_sync(~0u, sums[h][i], step);
                if (own == 0 && !idle) shared_sums[warp][h][(i / 8 * LANES + part) * 8 + i % 8] = sums[h][i];
            }
            if (lane == 0) {
                shared_largest[warp][h] = next;
                shared_total[warp][h] = total[h];
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
            part_sums(t, head, done)[i] = sum;
            if (i == 0) {
                float* numbers = part_numbers(t, head, done);
                numbers[0] = next;
                numbers[1] = all;
            }
        }
    }
    if (gridDim.y > 1 || r.splits == 1) return;
    __syncthreads();
    for (int n = threadIdx.x; n < GROUP * HEAD; n += blockDim.x) combine_splits(t, token, first + n / HEAD, n % HEAD, r.splits);
}

// Calls `attend_to(token)` for the tokens of a block of the grid.
template <typename Each> void each_token(const Decode& t, Each attend_to) {
#if MANY
    int first = blockIdx.z / t.beside * 64, count = min(64, t.tokens - first);
    u64 starts = run_starts(t.pages, first, count), left = 0;
    for (int half = 0; half < 2; half++) {
        int i = half * 32 + threadIdx.x % 32;
        bool few = i < count && run_end(starts, i, count) - run_begin(starts, i) < t.pages.few;
        left |= (u64)__ballot_sync(~0u, few) << (32 * half);
    }
    // Every `beside`th of them.
    for (int skipped = blockIdx.z % t.beside; skipped; skipped--) left &= left - 1;
    while (left) {
        attend_to(first + __ffsll(left) - 1);
        for (int skipped = 0; skipped < t.beside; skipped++) left &= left - 1;
    }
#else
    attend_to(0);
#endif
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) decode(const __grid_constant__ Decode t) {
    let_others_begin();
#if !ROTATED
    wait_for_others();
#endif
    each_token(t, [&](int token) { attend(t, token); });
}

// A block a head: its splits come together, where several blocks had them.
extern "C" __global__ void __launch_bounds__((HEAD + 31) / 32 * 32) combine(const __grid_constant__ Decode t) {
    let_others_begin();
    wait_for_others();
    each_token(t, [&](int token) {
        int splits = range_of(t, token).splits, i = threadIdx.x;
        if (splits > 1 && i < HEAD) combine_splits(t, token, blockIdx.x, i, splits);
    });
}
