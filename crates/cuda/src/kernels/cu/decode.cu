// Attention of one token: all that it sees of a cache, divided among blocks, each of which handles GROUP heads that share
// keys and values of HEAD elements of type KVTYPE. How much there is to see is read here, so one program serves all lengths.

struct Decode {
    u64 q, k, v, seen, sinks, y, parts;
    i64 q_head, k_row, k_head, v_row, v_head;  // bytes
    int heads, kv_heads, kv, splits, step;
    float scale, cap;
    u64 marks;
};

#define LANES (HEAD / 16)        // of one row
#define TOGETHER (32 / LANES)    // rows of a warp
#define WARPS 8
#define LEAST 64                 // rows of a split, if there are so many

// 8 elements from an address.
void load8(u64 at, float* x) {
#if KVTYPE == F32
    float4 a = ((const float4*)at)[0], b = ((const float4*)at)[1];
    x[0] = a.x; x[1] = a.y; x[2] = a.z; x[3] = a.w; x[4] = b.x; x[5] = b.y; x[6] = b.z; x[7] = b.w;
#else
    uint4 raw = *(const uint4*)at;
    u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
    for (int i = 0; i < 4; i++) {
        x[2 * i] = KVTYPE == F16 ? half_to_float((u16)words[i]) : bfloat_to_float((u16)words[i]);
        x[2 * i + 1] = KVTYPE == F16 ? half_to_float((u16)(words[i] >> 16)) : bfloat_to_float((u16)(words[i] >> 16));
    }
#endif
}

// Weights of splits, the largest score and the sum of each, behind all their results.
float* part_numbers(const Decode& t, int head, int split) {
    return (float*)t.parts + (i64)t.heads * t.splits * HEAD + 2 * (head * t.splits + split);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) decode(const __grid_constant__ Decode t) {
    let_others_begin();
    wait_for_others();
    const int size = KVTYPE == F32 ? 4 : 2;
    int per_kv = t.heads / t.kv_heads, first = blockIdx.x * GROUP, kv_head = first / per_kv, split = blockIdx.y;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = lane % LANES, own = lane / LANES;
    int seen = *(const int*)t.seen;
    if (seen < 0 || seen > t.kv) {
        if (blockIdx.x == 0 && split == 0 && threadIdx.x == 0) mark(t.marks, t.step, seen, t.kv);
        seen = 0;
    }
    int length = max((seen + t.splits - 1) / t.splits, LEAST), begin = min(seen, split * length), end = min(seen, begin + length);

    float q[GROUP][16], sums[GROUP][16], largest[GROUP], total[GROUP];
    for (int h = 0; h < GROUP; h++) {
        const float* from = (const float*)(t.q + (first + h) * t.q_head);
        for (int i = 0; i < 16; i++) {
            q[h][i] = from[(i / 8 * LANES + part) * 8 + i % 8] * t.scale;
            sums[h][i] = 0.0f;
        }
        largest[h] = -INFINITE;
        total[h] = 0.0f;
    }
    for (int base = begin + warp * TOGETHER; base < end; base += WARPS * TOGETHER) {
        int row = base + own;
        bool inside = row < end;
        float k[16], v[16];
        for (int half = 0; half < 2; half++) {
            i64 at = (half * LANES + part) * 8 * size;
            load8(t.k + kv_head * t.k_head + (inside ? row : begin) * t.k_row + at, k + 8 * half);
            load8(t.v + kv_head * t.v_head + (inside ? row : begin) * t.v_row + at, v + 8 * half);
        }
        for (int h = 0; h < GROUP; h++) {
            float score = 0.0f;
            for (int i = 0; i < 16; i++) score += q[h][i] * k[i];
            for (int step = 1; step < LANES; step *= 2) score += __shfl_xor_sync(~0u, score, step);
            if (t.cap != 0.0f) score = t.cap * tanhf(score / t.cap);
            if (!inside) continue;
            float next = fmaxf(largest[h], score), shrink = __expf(largest[h] - next), weight = __expf(score - next);
            largest[h] = next;
            total[h] = total[h] * shrink + weight;
            for (int i = 0; i < 16; i++) sums[h][i] = sums[h][i] * shrink + weight * v[i];
        }
    }

    // Lanes with other rows, then warps, come together.
    __shared__ float shared_sums[WARPS][GROUP][HEAD];
    __shared__ float shared_largest[WARPS][GROUP], shared_total[WARPS][GROUP];
    for (int h = 0; h < GROUP; h++) {
        float next = largest[h];
        for (int step = LANES; step < 32; step *= 2) next = fmaxf(next, __shfl_xor_sync(~0u, next, step));
        float shrink = largest[h] == -INFINITE ? 0.0f : __expf(largest[h] - next);
        total[h] *= shrink;
        for (int step = LANES; step < 32; step *= 2) total[h] += __shfl_xor_sync(~0u, total[h], step);
        for (int i = 0; i < 16; i++) {
            sums[h][i] *= shrink;
            for (int step = LANES; step < 32; step *= 2) sums[h][i] += __shfl_xor_sync(~0u, sums[h][i], step);
            if (own == 0) shared_sums[warp][h][(i / 8 * LANES + part) * 8 + i % 8] = sums[h][i];
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
        if (t.splits == 1 && t.sinks) next = fmaxf(next, ((const float*)t.sinks)[head]);
        for (int w = 0; w < WARPS; w++) {
            float shrink = shared_largest[w][h] == -INFINITE ? 0.0f : __expf(shared_largest[w][h] - next);
            sum += shared_sums[w][h][i] * shrink;
            all += shared_total[w][h] * shrink;
        }
        if (t.splits == 1) {
            if (t.sinks) all += __expf(((const float*)t.sinks)[head] - next);
            ((float*)t.y)[head * HEAD + i] = all > 0.0f ? sum / all : 0.0f;
            continue;
        }
        ((float*)t.parts)[((i64)head * t.splits + split) * HEAD + i] = sum;
        if (i == 0) {
            float* numbers = part_numbers(t, head, split);
            numbers[0] = next;
            numbers[1] = all;
        }
    }
}

// A block a head: the splits' results, weighted.
extern "C" __global__ void __launch_bounds__(HEAD) combine(const __grid_constant__ Decode t) {
    let_others_begin();
    wait_for_others();
    int head = blockIdx.x, i = threadIdx.x;
    float next = t.sinks ? ((const float*)t.sinks)[head] : -INFINITE, sum = 0.0f, all = 0.0f;
    for (int s = 0; s < t.splits; s++) next = fmaxf(next, part_numbers(t, head, s)[0]);
    for (int s = 0; s < t.splits; s++) {
        const float* numbers = part_numbers(t, head, s);
        if (numbers[0] == -INFINITE) continue;
        float shrink = __expf(numbers[0] - next);
        sum += ((const float*)t.parts)[((i64)head * t.splits + s) * HEAD + i] * shrink;
        all += numbers[1] * shrink;
    }
    if (t.sinks) all += __expf(((const float*)t.sinks)[head] - next);
    ((float*)t.y)[head * HEAD + i] = all > 0.0f ? sum / all : 0.0f;
}
