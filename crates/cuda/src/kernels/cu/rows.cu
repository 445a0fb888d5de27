// What lies between products: norms with their factors, rounding to F16, rotations on their way into caches; and the
// place of the largest element, which comes last.

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

struct Rounded {
    u64 x, other, weight, y, scales;  // `other`: what a gated function of `x` is multiplied with; `weight`: of a norm
    i64 x_row, other_row, rows;
    float eps;
    int k, bfloat, gate;
};

// What a row's elements are multiplied with, if it is normed on its way.
float row_factor(const Rounded& t, i64 row) {
    if (!t.weight) return 1.0f;
    const float4* x = (const float4*)(t.x + row * t.x_row);
    float squares = 0.0f;
    for (int i = threadIdx.x; i < t.k / 4; i += blockDim.x) {
        float4 v = x[i];
        squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    return 1.0f / sqrtf(block_sum(squares) / t.k + t.eps);
}

// Four elements before they are rounded: as they are, or normed, or gated.
float4 four_of(const Rounded& t, i64 row, int i, float factor) {
    float4 v = ((const float4*)(t.x + row * t.x_row))[i];
    if (t.weight) {
        float4 w = ((const float4*)t.weight)[i];
        v.x *= factor * w.x; v.y *= factor * w.y; v.z *= factor * w.z; v.w *= factor * w.w;
    }
    if (t.other) {
        float4 u = ((const float4*)(t.other + row * t.other_row))[i];
        v.x = gate_function(t.gate, v.x) * u.x;
        v.y = gate_function(t.gate, v.y) * u.y;
        v.z = gate_function(t.gate, v.z) * u.z;
        v.w = gate_function(t.gate, v.w) * u.w;
    }
    return v;
}

// Four elements of a row as F16. Tensor cores take 16 elements at a time, of which a lane has pairs at 2 t and at 2 t + 8;
// so that lanes can have eight neighbours of 32 in a row of weights, pairs stand here where their lane's are.
void put_f16x2(u64 row, int i, u32 first, u32 second) {
    u32* thirty_two = (u32*)row + i / 8 * 16;
    int place = i % 2 * 8 + i % 8 / 2;
    thirty_two[place] = first;
    thirty_two[place + 4] = second;
}

// Rows as F16, each with the power of two that keeps it within their range.
extern "C" __global__ void __launch_bounds__(1024) round_to_f16(const __grid_constant__ Rounded t) {
    let_others_begin();
    wait_for_others();
    for (i64 row = blockIdx.x; row < t.rows; row += gridDim.x) {
        u64 y = t.y + row * t.k * 2;
        float factor = row_factor(t, row);
        // Most rows fit at once: only those that do not are written anew.
        float largest = 0.0f, scale = 1.0f;
        for (int pass = 0; pass < 2; pass++) {
            float inverse = 1.0f / scale;
            for (int i = threadIdx.x; i < t.k / 4; i += blockDim.x) {
                float4 v = four_of(t, row, i, factor);
                largest = fmaxf(fmaxf(largest, fmaxf(fabsf(v.x), fabsf(v.y))), fmaxf(fabsf(v.z), fabsf(v.w)));
                if (t.bfloat)
                    put_f16x2(y, i, float_to_bfloat(v.x) | (u32)float_to_bfloat(v.y) << 16,
                               float_to_bfloat(v.z) | (u32)float_to_bfloat(v.w) << 16);
                else
                    put_f16x2(y, i, floats_to_f16x2(v.x * inverse, v.y * inverse), floats_to_f16x2(v.z * inverse, v.w * inverse));
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

// Rows in 8 bits, 32 elements with a scale of their own: first a group of all rows, then the next. Of a group's eight words,
// the fourth next stands beside each. Its numbers: the scale, and the sums of all, of the first 16 and of the others, times
// it. As on the CPU, a group with an infinity or without a number has a scale that is none.
extern "C" __global__ void __launch_bounds__(1024) round_to_int8(const __grid_constant__ Rounded t) {
    let_others_begin();
    wait_for_others();
    int lane = threadIdx.x % 32, word = lane % 8;
    for (i64 row = blockIdx.x; row < t.rows; row += gridDim.x) {
        float factor = row_factor(t, row);
        for (int start = threadIdx.x - lane; start < t.k / 4; start += blockDim.x) {
            int i = start + lane;
            bool inside = i < t.k / 4;
            float4 v = inside ? four_of(t, row, i, factor) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            // Magnitudes compare like their bits, and NaN is the largest.
            auto bits = [](float x) { return __float_as_uint(x) & 0x7fffffff; };
            u32 most = max(max(bits(v.x), bits(v.y)), max(bits(v.z), bits(v.w)));
            for (int step = 1; step < 8; step *= 2) most = max(most, __shfl_xor_sync(~0u, most, step));
            float largest = __uint_as_float(most), inverse = 127.0f / largest, d = largest / 127.0f;
            if (inverse == INFINITE) inverse = d = 0.0f;
            if (most >= 0x7f800000) { inverse = 0.0f; d = __int_as_float(0x7fffffff); v = make_float4(0.0f, 0.0f, 0.0f, 0.0f); }
            int q0 = __float2int_rn(v.x * inverse), q1 = __float2int_rn(v.y * inverse);
            int q2 = __float2int_rn(v.z * inverse), q3 = __float2int_rn(v.w * inverse);
            int sum = q0 + q1 + q2 + q3;
            for (int step = 1; step < 4; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
            int other = __shfl_xor_sync(~0u, sum, 4);
            if (!inside) continue;
            i64 group = (i64)(i / 8) * t.rows + row;
            u32 codes = __byte_perm(__byte_perm(q0, q1, 0x0040), __byte_perm(q2, q3, 0x0040), 0x5410);
            ((u32*)t.y)[group * 8 + (word < 4 ? 2 * word : 2 * word - 7)] = codes;
            if (word == 0) ((float4*)t.scales)[group] = make_float4(d, d * (sum + other), d * sum, d * other);
        }
        __syncthreads();
    }
}

struct Opened {
    u64 x, y;
    i64 elements;
    int dtype, block, bytes, gap;  // elements and bytes of a block
};

// Blocks as they are in files become F16, eight elements a thread at a time.
extern "C" __global__ void __launch_bounds__(256) dequantize(const __grid_constant__ Opened t) {
    let_others_begin();
    wait_for_others();
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < t.elements / 8; i += (i64)gridDim.x * blockDim.x) {
        const u8* block = (const u8*)t.x + 8 * i / t.block * t.bytes;
        int at = 8 * i % t.block;
        u32 words[4];
        for (int j = 0; j < 4; j++)
            words[j] = floats_to_f16x2(block_element(t.dtype, block, at + 2 * j), block_element(t.dtype, block, at + 2 * j + 1));
        ((uint4*)t.y)[i] = make_uint4(words[0], words[1], words[2], words[3]);
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

// The elements of a warp's lanes as a block, rounded as by `encode_block` in `general.cu`.
void put_block(int dtype, u64 block, float x) {
    int lane = threadIdx.x % 32;
    u32 size = size_of(x), most = size;
    for (int step = 16; step; step >>= 1) most = max(most, __shfl_xor_sync(~0u, most, step));
    // The first of the largest.
    float largest = __shfl_sync(~0u, x, __ffs(__ballot_sync(~0u, size == most)) - 1);
    BlockScale scale = block_scale(dtype, most == 0 ? 0.0f : largest);
    if (lane == 0) *(u16*)(block + (dtype == Q8_0 ? Q8_0_SCALE_AT : Q4_0_SCALE_AT)) = float_to_half(scale.scale);
    int code = block_code(dtype, x, scale), other = __shfl_down_sync(~0u, code, 16);
    if (dtype == Q8_0) ((u8*)block)[Q8_0_CODES_AT + lane] = code;
    else if (lane < 16) ((u8*)block)[Q4_0_CODES_AT + lane] = code | other << 4;
}

i64 cache_row(const Job& job, int token) {
    return index_at(job.indices, job.wide, token);
}

// Nothing is written if an index is wrong. Where two tokens have the same row, the later one is written.
extern "C" __global__ void __launch_bounds__(256) rotate(const __grid_constant__ Rotate t) {
    __shared__ int bad, tied;  // `tied`: indices may be the same, as one is not above the one before
    let_others_begin();
    if (threadIdx.x == 0) bad = tied = 0;
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
            if (token > 0 && row <= cache_row(t.job[j], token - 1)) tied = 1;
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
        bool later = false;
        if (tied && job.indices)
            for (int other = token + 1 + lane; other < t.tokens; other += 32) later = later || cache_row(job, other) == row;
        if (__any_sync(~0u, later)) continue;
        int last = min(job.heads, (group + 1) * TOGETHER), pairs = job.turned ? t.turn.dims / 2 : 0;
        // What the heads have is read before anything is written, so that all of it is on its way at once.
        auto at = [&](int head) { return (const float*)(job.x + min(head, last - 1) * job.x_head + token * job.x_token); };
        auto to = [&](int head) { return job.y + head * job.y_head + row * job.y_row; };
        const int begin = group * TOGETHER;
        for (int pair = lane; pair < pairs; pair += 32) {
            int first = t.turn.mode == ROPE_NORMAL ? 2 * pair : pair, second = t.turn.mode == ROPE_NORMAL ? 2 * pair + 1 : pair + pairs;
            float u[TOGETHER], v[TOGETHER], sine, cosine;
#pragma unroll
            for (int h = 0; h < TOGETHER; h++) u[h] = at(begin + h)[first], v[h] = at(begin + h)[second];
            turn_of(t.turn, pair, token, t.tokens, &sine, &cosine);
#pragma unroll
            for (int h = 0; h < TOGETHER; h++) {
                if (begin + h >= last) break;
                put(job.dtype, to(begin + h), first, u[h] * cosine - v[h] * sine);
                put(job.dtype, to(begin + h), second, u[h] * sine + v[h] * cosine);
            }
        }
        for (int i = 2 * pairs + lane; i < job.dim; i += 32) {
            float x[TOGETHER];
#pragma unroll
            for (int h = 0; h < TOGETHER; h++) x[h] = at(begin + h)[i];
#pragma unroll
            for (int h = 0; h < TOGETHER; h++) {
                if (begin + h >= last) break;
                if (job.dtype == Q8_0) put_block(Q8_0, to(begin + h) + i / 32 * Q8_0_BYTES, x[h]);
                else if (job.dtype == Q4_0) put_block(Q4_0, to(begin + h) + i / 32 * Q4_0_BYTES, x[h]);
                else put(job.dtype, to(begin + h), i, x[h]);
            }
        }
    }
}

struct Largest {
    u64 x, y;
    i64 x_row, rows;
    int k, gap;
};

// A block a row. NaN is below all numbers; of equals the first counts.
extern "C" __global__ void __launch_bounds__(1024) largest(const __grid_constant__ Largest t) {
    __shared__ u64 shared[32];
    let_others_begin();
    wait_for_others();
    for (i64 row = blockIdx.x; row < t.rows; row += gridDim.x) {
        const float* x = (const float*)(t.x + row * t.x_row);
        float best = -INFINITE;
        int place = -1;
        auto take = [&](float v, int i) {
            if (v > best || (place < 0 && !isnan(v))) { best = v; place = i; }
        };
        int fours = t.k / 4;
#pragma unroll 4
        for (int i = threadIdx.x; i < fours; i += blockDim.x) {
            float4 v = ((const float4*)x)[i];
            take(v.x, 4 * i); take(v.y, 4 * i + 1); take(v.z, 4 * i + 2); take(v.w, 4 * i + 3);
        }
        for (int i = 4 * fours + threadIdx.x; i < t.k; i += blockDim.x) take(x[i], i);
        // One number that is the larger the larger the element is, and then the nearer; both zeros are the same.
        u32 bits = __float_as_uint(best + 0.0f), order = bits >> 31 ? ~bits : bits | 0x80000000;
        u64 key = place < 0 ? 0 : (u64)order << 32 | (u32)~place;
        for (int step = 16; step > 0; step /= 2) key = max(key, __shfl_xor_sync(~0u, key, step));
        if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = key;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int warp = 1; warp < blockDim.x / 32; warp++) key = max(key, shared[warp]);
            ((int*)t.y)[row] = key == 0 ? 0 : (int)~(u32)key;
        }
        __syncthreads();
    }
}
