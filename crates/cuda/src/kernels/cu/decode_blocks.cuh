// Rows in blocks. Every warp copies eight rows at a time, which are whole numbers of 16 bytes, to its part of shared memory,
// STAGES - 1 times ahead. Queries are integers of 16 bits, so that products with keys are products of bytes: more exact than
// F16, and without a conversion of keys.
#if IN_BLOCKS

#define ROWS 8                             // of a warp at a time
#define PIECES (ROWS * ROW_BYTES / 16)     // of 16 bytes, and as many for values
#define STAGE (2 * ROWS * ROW_BYTES)
#define RING (STAGES * STAGE)              // of a warp
static_assert(ROWS * ROW_BYTES % 16 == 0 && BLOCK == WARPS * ROWS && ROWS % TOGETHER == 0, "warps divide a block of rows");
static_assert(GROUP * HEAD * 4 <= RING, "results come together where rows were");

// A lane's sixteen elements of a query of each head: upper and lower bytes, the integers' sum, and what they are times.
struct Query {
    int upper[GROUP][4], lower[GROUP][4], sum[GROUP];
    float scale[GROUP];
};

Query query_of(const Decode& t, int token, int part) {
    Query query;
    for (int h = 0; h < GROUP; h++) {
        const float* from = (const float*)(t.q + (i64)token * t.q_token + (blockIdx.x * GROUP + h) * t.q_head);
        float x[16], most = 0.0f;
        bool finite = true;
        for (int i = 0; i < 16; i++) {
            x[i] = from[element_of(part, i)];
            most = fmaxf(most, fabsf(x[i]));
            finite = finite && isfinite(x[i]);
        }
        // 127 * 256: with it, upper bytes are at most 127.
        float inverse = 32512.0f / most;
        if (inverse == INFINITE) inverse = 0.0f;
        query.scale[h] = finite ? most / 32512.0f * t.scale : __int_as_float(0x7fffffff);
        query.sum[h] = 0;
        for (int w = 0; w < 4; w++) {
            u32 upper = 0, lower = 0;
            for (int i = 0; i < 4; i++) {
                int number = __float2int_rn(x[4 * w + i] * inverse);
                query.sum[h] += number;
                upper |= ((number + 128) >> 8 & 255) << (8 * i);
                lower |= (number & 255) << (8 * i);
            }
            query.upper[h][w] = upper;
            query.lower[h][w] = lower;
        }
    }
    return query;
}

// The codes of a lane's sixteen elements of a row in shared memory, and their scale.
float load_codes(u32 row, int part, u32* codes) {
    u32 block = row + part / 2 * BLOCK_BYTES;
#if KVTYPE == Q8_0
    words_at<4>(block + CODES_AT + part % 2 * 16, codes);
#else
    u32 nibbles[2];
    words_at<2>(block + CODES_AT + part % 2 * 8, nibbles);
    for (int i = 0; i < 2; i++) {
        codes[i] = nibbles[i] & 0x0f0f0f0f;
        codes[2 + i] = nibbles[i] >> 4 & 0x0f0f0f0f;
    }
#endif
    return half_to_float(scale_at(block));
}

int product_of(const Query& query, int h, const u32* codes) {
    int upper = 0, lower = KVTYPE == Q4_0 ? -Q4_0_BIAS * query.sum[h] : 0;
    for (int w = 0; w < 4; w++) {
        upper = __dp4a(query.upper[h][w], (int)codes[w], upper);
        lower = __dp4a(query.lower[h][w], (int)codes[w], lower);
    }
    return upper * 256 + lower;
}

// Codes as floats: 2^23 + code is a float whose lower bits are the code. Signed ones are moved by 128 first.
void floats_of(const u32* codes, float* x) {
    const u32 moved = KVTYPE == Q8_0 ? 0x80808080 : 0;
    const float offset = 8388608.0f + (KVTYPE == Q8_0 ? 128 : Q4_0_BIAS);
    for (int i = 0; i < 16; i++)
        x[i] = __uint_as_float(__byte_perm(codes[i / 4] ^ moved, 0x4b000000, 0x7440 + i % 4)) - offset;
}

void attend(const Decode& t, int token) {
    int kv_head = blockIdx.x * GROUP / (t.heads / t.kv_heads);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, own = lane / WIDE;
    bool idle = lane % WIDE >= LANES;
    int part = idle ? 0 : lane % WIDE;
    const Range r = range_of(t, token);
    if (blockIdx.y >= r.splits) return;
    __shared__ int places[SPLIT_BLOCKS];
    find_places(t, r, blockIdx.y, places);
    if (EARLY) wait_for_others();
    const Query query = query_of(t, token, part);
    const u32 ring = warp * RING, shared = (u32)__cvta_generic_to_shared(memory) + ring;
    const u64 keys = t.k + kv_head * t.k_head, values = t.v + kv_head * t.v_head;
    for (int split = blockIdx.y; split < r.splits; split += gridDim.y) {
        // The warp's first row, and where the split ends.
        int base = (r.front + split * r.length) * BLOCK + warp * ROWS, end = min(r.seen, (r.front + (split + 1) * r.length) * BLOCK);
        if (split != blockIdx.y) find_places(t, r, split, places);
        auto load = [&](int block) {
            int row = base + block * BLOCK;
            if (row < end && row + ROWS > r.unseen) {
                int bytes = min(end - row, ROWS) * ROW_BYTES;
                i64 from = (i64)(places[block] + warp * ROWS) * ROW_BYTES;
                for (int i = lane; i < 2 * PIECES; i += 32) {
                    int at = (i < PIECES ? i : i - PIECES) * 16;
                    if (at < bytes)
                        copy_piece(shared + block % STAGES * STAGE + i * 16, (i < PIECES ? keys : values) + from + at, min(bytes - at, 16));
                }
            }
            asm volatile("cp.async.commit_group;");
        };
        for (int block = 0; block < STAGES - 1; block++) load(block);
        Sums s;
        clear(s);
        for (int block = 0; base + block * BLOCK < end; block++) {
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
            // All lanes have done with the block before, whose place is taken next.
            __syncwarp();
            load(block + STAGES - 1);
#pragma unroll
            for (int n = 0; n < ROWS; n += TOGETHER) {
                int row = base + block * BLOCK + n + own;
                bool inside = row >= r.unseen && row < end;
                u32 at = ring + block % STAGES * STAGE + (n + own) * ROW_BYTES, codes[4];
                float scale = load_codes(at, part, codes), scores[GROUP], x[16];
                for (int h = 0; h < GROUP; h++) {
                    scores[h] = idle ? 0.0f : product_of(query, h, codes) * (query.scale[h] * scale);
                    for (int step = 1; step < WIDE; step *= 2) scores[h] += __shfl_xor_sync(~0u, scores[h], step);
                    if (t.cap != 0.0f) scores[h] = t.cap * tanhf(scores[h] / t.cap);
                }
                // Where nothing was copied, codes are of another row or none, and scales may be NaN.
                scale = load_codes(at + ROWS * ROW_BYTES, part, codes);
                if (!inside) continue;
                floats_of(codes, x);
                for (int h = 0; h < GROUP; h++) {
                    if (scores[h] > s.largest[h]) {
                        float shrink = __expf(s.largest[h] - scores[h]);
                        s.largest[h] = scores[h];
                        s.total[h] *= shrink;
                        for (int i = 0; i < 16; i++) s.sums[h][i] *= shrink;
                    }
                    float weight = __expf(scores[h] - s.largest[h]);
                    s.total[h] += weight;
                    weight *= scale;
                    for (int i = 0; i < 16; i++) s.sums[h][i] += weight * x[i];
                }
            }
        }
        come_together(t, token, r, split, s, (float (*)[GROUP][HEAD])memory);
    }
    combine_own_splits(t, token, r);
}
#endif
