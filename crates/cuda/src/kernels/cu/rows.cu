// What lies between products: norms with their factors, rounding to halves, and rotations on their way into caches.

struct ScaledNorm {
    u64 x, weight, bias, y;
    i64 x_row, y_row;  // bytes from row to row
    i64 rows;
    int k;
    int mean;          // subtract it
    float eps;
};

// A block a row; rows are whole numbers of four elements.
extern "C" __global__ void __launch_bounds__(1024) scaled_norm(const __grid_constant__ ScaledNorm t) {
    let_others_begin();
    wait_for_others();
    for (i64 row = blockIdx.x; row < t.rows; row += gridDim.x) {
        const float4* x = (const float4*)(t.x + row * t.x_row);
        float4* y = (float4*)(t.y + row * t.y_row);
        float mean = 0.0f, squares = 0.0f;
        if (t.mean) {
            for (int i = threadIdx.x; i < t.k / 4; i += blockDim.x) {
                float4 v = x[i];
                mean += v.x + v.y + v.z + v.w;
            }
            mean = block_sum(mean) / t.k;
        }
        for (int i = threadIdx.x; i < t.k / 4; i += blockDim.x) {
            float4 v = x[i];
            v.x -= mean; v.y -= mean; v.z -= mean; v.w -= mean;
            squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        }
        float factor = 1.0f / sqrtf(block_sum(squares) / t.k + t.eps);
        for (int i = threadIdx.x; i < t.k / 4; i += blockDim.x) {
            float4 v = x[i], w = ((const float4*)t.weight)[i];
            v.x = (v.x - mean) * factor * w.x;
            v.y = (v.y - mean) * factor * w.y;
            v.z = (v.z - mean) * factor * w.z;
            v.w = (v.w - mean) * factor * w.w;
            if (t.bias) {
                float4 b = ((const float4*)t.bias)[i];
                v.x += b.x; v.y += b.y; v.z += b.z; v.w += b.w;
            }
            y[i] = v;
        }
    }
}

struct Halves {
    u64 x, other, weight, y, scales;  // `other`: what a gated function of `x` is multiplied with; `weight`: of a norm
    i64 x_row, other_row, rows;
    float eps;
    int k, bfloat, gate;
};

// Rows as halves, each with the power of two that keeps it within their range: as they are, or normed, or gated before.
extern "C" __global__ void __launch_bounds__(1024) halves(const __grid_constant__ Halves t) {
    let_others_begin();
    wait_for_others();
    for (i64 row = blockIdx.x; row < t.rows; row += gridDim.x) {
        const float4* x = (const float4*)(t.x + row * t.x_row);
        const float4* other = (const float4*)(t.other + row * t.other_row);
        uint2* y = (uint2*)(t.y + row * t.k * 2);
        float factor = 1.0f;
        if (t.weight) {
            float squares = 0.0f;
            for (int i = threadIdx.x; i < t.k / 4; i += blockDim.x) {
                float4 v = x[i];
                squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
            }
            factor = 1.0f / sqrtf(block_sum(squares) / t.k + t.eps);
        }
        auto value = [&](int i) {
            float4 v = x[i];
            if (t.weight) {
                float4 w = ((const float4*)t.weight)[i];
                v.x *= factor * w.x; v.y *= factor * w.y; v.z *= factor * w.z; v.w *= factor * w.w;
            }
            if (t.other) {
                float4 u = other[i];
                v.x = gate_function(t.gate, v.x) * u.x;
                v.y = gate_function(t.gate, v.y) * u.y;
                v.z = gate_function(t.gate, v.z) * u.z;
                v.w = gate_function(t.gate, v.w) * u.w;
            }
            return v;
        };
        // Most rows fit at once: only those that do not are written anew.
        float largest = 0.0f, scale = 1.0f;
        for (int pass = 0; pass < 2; pass++) {
            float inverse = 1.0f / scale;
            for (int i = threadIdx.x; i < t.k / 4; i += blockDim.x) {
                float4 v = value(i);
                largest = fmaxf(fmaxf(largest, fmaxf(fabsf(v.x), fabsf(v.y))), fmaxf(fabsf(v.z), fabsf(v.w)));
                if (t.bfloat)
                    y[i] = make_uint2(float_to_bfloat(v.x) | (u32)float_to_bfloat(v.y) << 16,
                                      float_to_bfloat(v.z) | (u32)float_to_bfloat(v.w) << 16);
                else
                    y[i] = make_uint2(floats_to_halves(v.x * inverse, v.y * inverse), floats_to_halves(v.z * inverse, v.w * inverse));
            }
            if (pass == 1 || t.bfloat) break;
            largest = block_max(largest);
            if (largest <= 32768.0f || largest == INFINITE || isnan(largest)) break;
            scale = exp2f(ceilf(log2f(largest / 16384.0f)));
        }
        if (threadIdx.x == 0) ((float*)t.scales)[row] = scale;
        __syncthreads();
    }
}

struct Job {
    u64 x, y, indices;
    i64 x_head, x_token;  // bytes
    i64 y_head, y_row;    // bytes; rows are tokens, or what the indices say
    i64 rows;             // of the cache
    int heads, dim, turned, dtype, wide;  // `wide`: indices of 64 bits
};

struct Rotate {
    Job job[4];
    Turn turn;
    u64 marks;
    int jobs, tokens, step, gap;
};

#define TOGETHER 8

void put(int dtype, u64 y, int i, float x) {
    if (dtype == F32) ((float*)y)[i] = x;
    else ((u16*)y)[i] = dtype == F16 ? float_to_half(x) : float_to_bfloat(x);
}

i64 cache_row(const Job& job, int token) {
    return job.wide ? ((const i64*)job.indices)[token] : (i64)((const int*)job.indices)[token];
}

// Nothing is written if an index is wrong.
extern "C" __global__ void __launch_bounds__(256) rotate(const __grid_constant__ Rotate t) {
    __shared__ int bad;
    let_others_begin();
    if (threadIdx.x == 0) bad = 0;
    wait_for_others();
    __syncthreads();
    for (int j = 0; j < t.jobs; j++) {
        if (!t.job[j].indices) continue;
        for (int token = threadIdx.x; token < t.tokens; token += blockDim.x) {
            i64 row = cache_row(t.job[j], token);
            if (row < -1 || row >= t.job[j].rows) {
                bad = 1;
                if (blockIdx.x == 0) mark(t.marks, t.step, row, t.job[j].rows);
            }
        }
    }
    __syncthreads();
    if (bad) return;
    int lane = threadIdx.x % 32;
    // A warp takes TOGETHER heads of a token, whose turns are the same.
    int groups = 0;
    for (int j = 0; j < t.jobs; j++) groups += (t.job[j].heads + TOGETHER - 1) / TOGETHER;
    i64 work = (i64)groups * t.tokens, warps = blockDim.x / 32;
    for (i64 n = blockIdx.x * warps + threadIdx.x / 32; n < work; n += gridDim.x * warps) {
        int token = n / groups, group = n % groups, j = 0;
        while (group >= (t.job[j].heads + TOGETHER - 1) / TOGETHER) group -= (t.job[j++].heads + TOGETHER - 1) / TOGETHER;
        const Job& job = t.job[j];
        i64 row = job.indices ? cache_row(job, token) : token;
        if (row < 0) continue;
        int last = min(job.heads, (group + 1) * TOGETHER), pairs = job.turned ? t.turn.dims / 2 : 0;
        for (int pair = lane; pair < pairs; pair += 32) {
            float sine, cosine;
            turn_of(t.turn, pair, token, t.tokens, &sine, &cosine);
            int first = t.turn.mode == 0 ? 2 * pair : pair, second = t.turn.mode == 0 ? 2 * pair + 1 : pair + pairs;
            for (int head = group * TOGETHER; head < last; head++) {
                const float* x = (const float*)(job.x + head * job.x_head + token * job.x_token);
                u64 y = job.y + head * job.y_head + row * job.y_row;
                float u = x[first], v = x[second];
                put(job.dtype, y, first, u * cosine - v * sine);
                put(job.dtype, y, second, u * sine + v * cosine);
            }
        }
        for (int head = group * TOGETHER; head < last; head++) {
            const float* x = (const float*)(job.x + head * job.x_head + token * job.x_token);
            u64 y = job.y + head * job.y_head + row * job.y_row;
            for (int i = 2 * pairs + lane; i < job.dim; i += 32) put(job.dtype, y, i, x[i]);
        }
    }
}
