// Rows of floats. With ROTATED, the token's own heads come as they left their products: every block turns the queries and the
// key it needs, and one of those that share a key and a value writes them to the cache. The others do not wait for that:
// whoever comes to that row takes what it has turned itself.
#if !IN_BLOCKS

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
    __shared__ int places[SPLIT_BLOCKS];
    auto load_row = [&](int row) {
        loaded = PAGE ? places[row / BLOCK - r.front - split * r.length] + row % BLOCK : row;
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
        if (PAGE) find_places(t, r, split, places);
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

    float q[GROUP][16];
    for (int h = 0; h < GROUP; h++) {
#if ROTATED
        const float* from = own_q[h];
#else
        const float* from = (const float*)(t.q + (i64)token * t.q_token + (first + h) * t.q_head);
#endif
        for (int i = 0; i < 16; i++) q[h][i] = idle ? 0.0f : from[element_of(part, i)] * t.scale;
    }
    __shared__ float shared_sums[WARPS][GROUP][HEAD];
    for (int next_split; split < r.splits; split = next_split) {
        Sums s;
        clear(s);
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
                float next = fmaxf(s.largest[h], score), shrink = __expf(s.largest[h] - next), weight = __expf(score - next);
                s.largest[h] = next;
                s.total[h] = s.total[h] * shrink + weight;
                for (int i = 0; i < 16; i++) s.sums[h][i] = s.sums[h][i] * shrink + weight * v[i];
            }
        }
        // The next split's first rows are on their way while this one's results come together.
        int done = split;
        next_split = split + gridDim.y;
        if (next_split < r.splits) {
            split = next_split;
            open_split();
        }
        come_together(t, token, r, done, s, shared_sums);
    }
    combine_own_splits(t, token, r);
}
#endif
