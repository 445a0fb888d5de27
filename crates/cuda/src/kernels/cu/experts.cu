// What lies around the products of experts: which experts a token takes and how much each counts, tokens in the order of
// their experts, and the sum of what experts have made of a token.

struct Route {
    u64 x, w;          // activations and the router's matrix, or 0 where
    u64 scores;        // its results are there
    u64 ids, weights;  // of a token, `used` each
    i64 x_row, w_row, scores_row, ids_row;  // bytes
    int k, experts, used, tokens, dtype;
    float scale, low, high, factor;
    int gap;
};

extern __shared__ float scores[];

// Four elements of a row of the router's matrix.
float4 four_weights(const Route& t, int expert, int i) {
    u64 row = t.w + expert * t.w_row;
    if (t.dtype == F32) return ((const float4*)row)[i];
    uint2 two = ((const uint2*)row)[i];
    if (t.dtype == F16) {
        float2 a = f16x2_to_floats(two.x), b = f16x2_to_floats(two.y);
        return make_float4(a.x, a.y, b.x, b.y);
    }
    return make_float4(bfloat_to_float((u16)two.x), bfloat_to_float((u16)(two.x >> 16)), bfloat_to_float((u16)two.y),
                       bfloat_to_float((u16)(two.y >> 16)));
}

// A number that is the larger the likelier an expert is; NaN comes after all numbers, and what was taken last.
u32 order_of(float x) { return x < 0.0f ? 0 : isnan(x) ? 1 : __float_as_uint(x) + 2; }

// TOKENS tokens a block, a warp each once the scores are there: their softmax, the `used` largest of it, of equals the first,
// and those divided by their sum.
extern "C" __global__ void __launch_bounds__(256) route(const __grid_constant__ Route t) {
    let_others_begin();
    wait_for_others();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.x * TOKENS;
    if (t.w) {
        for (int expert = warp; expert < t.experts; expert += blockDim.x / 32) {
            float sums[TOKENS] = {};
            for (int i = lane; i < t.k / 4; i += 32) {
                float4 w = four_weights(t, expert, i);
#pragma unroll
                for (int n = 0; n < TOKENS; n++) {
                    float4 x = ((const float4*)(t.x + min(first + n, t.tokens - 1) * t.x_row))[i];
                    sums[n] += w.x * x.x + w.y * x.y + w.z * x.z + w.w * x.w;
                }
            }
#pragma unroll
            for (int n = 0; n < TOKENS; n++) {
                float sum = warp_sum(sums[n]);
                if (lane == 0) scores[n * t.experts + expert] = sum;
            }
        }
    } else {
        for (int i = threadIdx.x; i < TOKENS * t.experts; i += blockDim.x) {
            int token = min(first + i / t.experts, t.tokens - 1);
            scores[i] = ((const float*)(t.scores + token * t.scores_row))[i % t.experts];
        }
    }
    __syncthreads();
    int token = first + warp;
    if (warp >= TOKENS || token >= t.tokens) return;
    float* own = scores + warp * t.experts;
    float largest = -INFINITE, sum = 0.0f;
    for (int e = lane; e < t.experts; e += 32) largest = fmaxf(largest, own[e] * t.scale);
    largest = warp_max(largest);
    for (int e = lane; e < t.experts; e += 32) sum += own[e] = expf(own[e] * t.scale - largest);
    sum = warp_sum(sum);
    for (int e = lane; e < t.experts; e += 32) own[e] = largest == -INFINITE ? 0.0f : own[e] / sum;
    float chosen = 0.0f;
    for (int round = 0; round < t.used; round++) {
        u64 best = 0;
        for (int e = lane; e < t.experts; e += 32) best = max(best, (u64)order_of(own[e]) << 32 | (u32)~e);
        for (int step = 16; step; step >>= 1) best = max(best, __shfl_xor_sync(~0u, best, step));
        int expert = (int)~(u32)best;
        if (lane == round) chosen = own[expert];
        __syncwarp();
        if (lane == 0) {
            ((int*)(t.ids + token * t.ids_row))[round] = expert;
            own[expert] = -1.0f;
        }
        __syncwarp();
    }
    float all = warp_sum(chosen);
    all = all > t.high ? t.high : all;
    all = all < t.low ? t.low : all;
    if (lane < t.used) ((float*)t.weights)[(i64)token * t.used + lane] = chosen / all * t.factor;
}

struct Sort {
    u64 ids, sorted, marks;
    i64 ids_row;
    int experts, used, tokens, tile, tiles, step;
    int some, gap;  // -1 is the number of no expert
};

// Places of tokens (slots) in the order of their experts, in tiles of at most `tile`. Written: how many tiles there are; for
// each of at most `tiles`, its expert (-1: none, behind all others), its first slot and how many it has; then the slots. One
// block.
extern "C" __global__ void __launch_bounds__(1024) sort(const __grid_constant__ Sort t) {
    let_others_begin();
    wait_for_others();
    int* counts = (int*)scores;
    int slots = t.used * t.tokens, lane = threadIdx.x % 32;
    int4* tiles = (int4*)t.sorted;
    u32* order = (u32*)(tiles + 1 + t.tiles);
    // Those without an expert come as if they had one more.
    int kinds = t.experts + t.some;
    auto kind_of = [&](int slot) {
        int expert = ((const int*)(t.ids + slot / t.used * t.ids_row))[slot % t.used];
        if (t.some && expert == -1) return t.experts;
        if (expert >= 0 && expert < t.experts) return expert;
        mark(t.marks, t.step, expert, t.experts);
        return -1;
    };
    for (int e = threadIdx.x; e < kinds; e += blockDim.x) counts[e] = 0;
    __syncthreads();
    for (int slot = threadIdx.x; slot < slots; slot += blockDim.x) {
        int kind = kind_of(slot);
        if (kind >= 0) atomicAdd(counts + kind, 1);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        int before = 0, tiles_before = 0;
        for (int base = 0; base < kinds; base += 32) {
            int e = base + lane, count = e < kinds ? counts[e] : 0, own = (count + t.tile - 1) / t.tile;
            int to = count, tiles_to = own;
            for (int step = 1; step < 32; step *= 2) {
                int a = __shfl_up_sync(~0u, to, step), b = __shfl_up_sync(~0u, tiles_to, step);
                if (lane >= step) to += a, tiles_to += b;
            }
            int first = before + to - count;
            for (int n = 0; n < own; n++)
                tiles[1 + tiles_before + tiles_to - own + n] = make_int4(e < t.experts ? e : -1, first + n * t.tile, min(t.tile, count - n * t.tile), 0);
            if (e < kinds) counts[e] = first;
            before += __shfl_sync(~0u, to, 31);
            tiles_before += __shfl_sync(~0u, tiles_to, 31);
        }
        if (lane == 0) tiles[0] = make_int4(tiles_before, 0, 0, 0);
    }
    __syncthreads();
    for (int slot = threadIdx.x; slot < slots; slot += blockDim.x) {
        int kind = kind_of(slot);
        if (kind >= 0) order[atomicAdd(counts + kind, 1)] = slot;
    }
}

struct Mix {
    u64 x, weights, add, y;
    i64 x_token, x_slot, add_row, y_row;  // bytes
    int k, used, tokens, gap;
};

// What the experts of a token have made of it, each times its weight; a block a token.
extern "C" __global__ void __launch_bounds__(1024) mix(const __grid_constant__ Mix t) {
    let_others_begin();
    wait_for_others();
    for (int token = blockIdx.x; token < t.tokens; token += gridDim.x) {
        const float* weights = (const float*)t.weights + (i64)token * t.used;
        for (int i = threadIdx.x; i < t.k / 4; i += blockDim.x) {
            float4 sum = t.add ? ((const float4*)(t.add + token * t.add_row))[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            for (int slot = 0; slot < t.used; slot++) {
                float4 x = ((const float4*)(t.x + token * t.x_token + slot * t.x_slot))[i];
                float w = weights[slot];
                sum.x += w * x.x; sum.y += w * x.y; sum.z += w * x.z; sum.w += w * x.w;
            }
            ((float4*)(t.y + token * t.y_row))[i] = sum;
        }
    }
}
