// What all kernels share. NVRTC has no headers, so half precision is a 16-bit integer and a few instructions. `types.cuh`,
// which comes first, is generated: element types, the offsets of block fields, tables of code values, `block_elements`.
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// A tensor at its place: extents, and strides in bytes (in dimension 0, from block to block).
struct Tensor {
    u64 at;
    i64 ne[4];
    i64 nb[4];
    u64 start[4];  // where planes begin, from `at`
    int dtype;
    int planes;    // blocks are taken apart
};

#define INFINITE __int_as_float(0x7f800000)

float half_to_float(u16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
u16 float_to_half(float x) { u16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
// Two F16, the first in the lower bits.
u32 floats_to_f16x2(float a, float b) { u32 y; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(b), "f"(a)); return y; }
float2 f16x2_to_floats(u32 x) { return make_float2(half_to_float((u16)x), half_to_float((u16)(x >> 16))); }
float bfloat_to_float(u16 x) { return __uint_as_float((u32)x << 16); }
u16 float_to_bfloat(float x) {
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return (bits >> 16) | 0x40;
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

u16 load16(const u8* at) { return at[0] | (u16)at[1] << 8; }
u32 load32(const u8* at) { return load16(at) | (u32)load16(at + 2) << 16; }

float mxfp4_scale(u8 exponent) {
    return __uint_as_float(exponent < 2 ? 0x00200000u << exponent : (u32)(exponent - 1) << 23);
}

// Scale and minimum of one of the eight groups of Q4_K and Q5_K, from their 12 bytes.
void k_scales(const u8* packed, int group, int* scale, int* min) {
    int j = group & 3;
    if (group < 4) {
        *scale = packed[j] & 63;
        *min = packed[4 + j] & 63;
    } else {
        *scale = (packed[8 + j] & 15) | (packed[j] >> 6) << 4;
        *min = (packed[8 + j] >> 4) | (packed[4 + j] >> 6) << 4;
    }
}

// One of the sixteen group scales of Q3_K.
int q3_k_scale(const u8* packed, int group) {
    int low = (packed[group & 7] >> (group < 8 ? 0 : 4)) & 15;
    return (low | ((packed[8 + (group & 3)] >> (2 * (group >> 2))) & 3) << 4) - Q3_K_GROUP_SCALE_BIAS;
}

// Element `e` of a block as a file has it.
__noinline__ float block_element(int dtype, const u8* b, int e) {
    int j = e & 15, high = (e >> 4) & 1;
    switch (dtype) {
        case Q4_0:
            return half_to_float(load16(b + Q4_0_SCALE_AT)) * (((b[Q4_0_CODES_AT + j] >> (4 * high)) & 15) - Q4_0_BIAS);
        case Q4_1:
            return half_to_float(load16(b + Q4_1_SCALE_AT)) * ((b[Q4_1_CODES_AT + j] >> (4 * high)) & 15) +
                   half_to_float(load16(b + Q4_1_MIN_AT));
        case Q5_0: {
            int q = ((b[Q5_0_CODES_AT + j] >> (4 * high)) & 15) | ((load32(b + Q5_0_HIGH_BITS_AT) >> e) & 1) << 4;
            return half_to_float(load16(b + Q5_0_SCALE_AT)) * (q - Q5_0_BIAS);
        }
        case Q5_1: {
            int q = ((b[Q5_1_CODES_AT + j] >> (4 * high)) & 15) | ((load32(b + Q5_1_HIGH_BITS_AT) >> e) & 1) << 4;
            return half_to_float(load16(b + Q5_1_SCALE_AT)) * q + half_to_float(load16(b + Q5_1_MIN_AT));
        }
        case Q8_0: return half_to_float(load16(b + Q8_0_SCALE_AT)) * (i8)b[Q8_0_CODES_AT + e];
        case Q8_1: return half_to_float(load16(b + Q8_1_SCALE_AT)) * (i8)b[Q8_1_CODES_AT + e];
        case IQ4_NL:
            return half_to_float(load16(b + IQ4_NL_SCALE_AT)) * IQ4_NL_VALUES[(b[IQ4_NL_CODES_AT + j] >> (4 * high)) & 15];
        case MXFP4: return mxfp4_scale(b[MXFP4_SCALE_AT]) * MXFP4_VALUES[(b[MXFP4_CODES_AT + j] >> (4 * high)) & 15];
        case TQ2_0:
            return half_to_float(load16(b + TQ2_0_SCALE_AT)) *
                   (((b[TQ2_0_CODES_AT + (e / 128) * 32 + e % 32] >> (2 * (e % 128 / 32))) & 3) - TQ2_0_BIAS);
        case Q2_K: {
            int q = (b[Q2_K_CODES_AT + (e / 128) * 32 + e % 32] >> (2 * (e % 128 / 32))) & 3;
            int s = b[Q2_K_GROUP_SCALES_AT + e / Q2_K_GROUP];
            return half_to_float(load16(b + Q2_K_SCALE_AT)) * (s & 15) * q -
                   half_to_float(load16(b + Q2_K_MIN_AT)) * (s >> 4);
        }
        case Q3_K: {
            int low = (b[Q3_K_CODES_AT + (e / 128) * 32 + e % 32] >> (2 * (e % 128 / 32))) & 3;
            int bit = (b[Q3_K_HIGH_BITS_AT + e % 32] >> (e / 32)) & 1;
            return half_to_float(load16(b + Q3_K_SCALE_AT)) * q3_k_scale(b + Q3_K_GROUP_SCALES_AT, e / Q3_K_GROUP) *
                   ((low | bit << 2) - Q3_K_BIAS);
        }
        case Q4_K: case Q5_K: {
            int scale, min;
            k_scales(b + Q4_K_GROUP_SCALES_AT, e / Q4_K_GROUP, &scale, &min);
            const u8* nibbles = b + (dtype == Q4_K ? Q4_K_CODES_AT : Q5_K_CODES_AT);
            int q = (nibbles[(e / 64) * 32 + e % 32] >> (4 * (e % 64 / 32))) & 15;
            if (dtype == Q5_K) q |= ((b[Q5_K_HIGH_BITS_AT + e % 32] >> (e / 32)) & 1) << 4;
            return half_to_float(load16(b + Q4_K_SCALE_AT)) * scale * q - half_to_float(load16(b + Q4_K_MIN_AT)) * min;
        }
        case Q6_K: {
            int low = (b[Q6_K_CODES_AT + (e / 128) * 64 + e % 64] >> (4 * (e % 128 / 64))) & 15;
            int top = (b[Q6_K_HIGH_BITS_AT + (e / 128) * 32 + e % 32] >> (2 * (e % 128 / 32))) & 3;
            return half_to_float(load16(b + Q6_K_SCALE_AT)) * (i8)b[Q6_K_GROUP_SCALES_AT + e / Q6_K_GROUP] *
                   ((low | top << 4) - Q6_K_BIAS);
        }
        case Q8_K: return __uint_as_float(load32(b + Q8_K_SCALE_AT)) * (i8)b[Q8_K_CODES_AT + e];
        case IQ4_XS: {
            int group = e / IQ4_XS_GROUP;
            int scale = ((b[IQ4_XS_GROUP_SCALES_AT + group / 2] >> (4 * (group & 1))) & 15) |
                        ((load16(b + IQ4_XS_GROUP_SCALES_HIGH_AT) >> (2 * group)) & 3) << 4;
            int q = (b[IQ4_XS_CODES_AT + group * 16 + j] >> (4 * high)) & 15;
            return half_to_float(load16(b + IQ4_XS_SCALE_AT)) * (scale - IQ4_XS_GROUP_SCALE_BIAS) * IQ4_XS_VALUES[q];
        }
    }
    return 0.0f;
}

// An element of a plain type.
__noinline__ float load_plain(int dtype, u64 at) {
    switch (dtype) {
        case F32: return *(const float*)at;
        case F16: return half_to_float(*(const u16*)at);
        case BF16: return bfloat_to_float(*(const u16*)at);
        case I32: return (float)*(const int*)at;
        case I8: return (float)*(const i8*)at;
        case I16: return (float)*(const short*)at;
        case I64: return (float)*(const i64*)at;
        case F64: return (float)*(const double*)at;
    }
    return 0.0f;
}

__noinline__ void store_plain(int dtype, u64 at, float x) {
    switch (dtype) {
        case F32: *(float*)at = x; break;
        case F16: *(u16*)at = float_to_half(x); break;
        case BF16: *(u16*)at = float_to_bfloat(x); break;
        case I32: *(int*)at = (int)x; break;
        case I8: *(i8*)at = (i8)max(-128, min(127, (int)x)); break;
        case I16: *(short*)at = (short)max(-32768, min(32767, (int)x)); break;
        case F64: *(double*)at = x; break;
    }
}

i64 index_at(u64 indices, int wide, int n) { return wide ? ((const i64*)indices)[n] : (i64)((const int*)indices)[n]; }

// Blocks of Q8_0 and Q4_0 as they are written. Magnitudes compare like their bits; NaN counts as none.
u32 size_of(float x) { return isnan(x) ? 0 : __float_as_uint(x) & 0x7fffffff; }

struct BlockScale {
    float scale, inverse;
};

BlockScale block_scale(int dtype, float largest) {
    float scale = dtype == Q8_0 ? fabsf(largest) / 127.0f : largest / -8.0f;
    return {scale, scale == 0.0f ? 0.0f : 1.0f / scale};
}

int block_code(int dtype, float x, const BlockScale& scale) {
    if (dtype == Q4_0) return min(15, max(0, (int)(x * scale.inverse + 8.5f)));
    float level = roundf(x * scale.inverse);
    return isfinite(level) ? (i8)level : 0;
}

float warp_sum(float x) {
    for (int step = 16; step; step >>= 1) x += __shfl_xor_sync(~0u, x, step);
    return x;
}
float warp_max(float x) {
    for (int step = 16; step; step >>= 1) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
    return x;
}

// The sum or maximum over a block of up to 1024 threads, for every thread.
template <bool MAX> float block_reduce(float x) {
    __shared__ float parts[32];
    x = MAX ? warp_max(x) : warp_sum(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    float y = threadIdx.x % 32 < (blockDim.x + 31) / 32 ? parts[threadIdx.x % 32] : MAX ? -INFINITE : 0.0f;
    return MAX ? warp_max(y) : warp_sum(y);
}
float block_sum(float x) { return block_reduce<false>(x); }
float block_max(float x) { return block_reduce<true>(x); }

// Kernels that may begin before the one in front has ended wait for its results here, and let the next one begin.
void wait_for_others() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
void let_others_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Leaves a mark that a number in the data is out of range.
void mark(u64 marks, int step, i64 index, i64 rows) {
    volatile i64* page = (volatile i64*)marks;
    page[1] = index;
    page[2] = rows;
    __threadfence_system();
    page[0] = step + 1;
}

float gate_function(int gate, float x) {
    switch (gate) {
        case GATE_RELU: return x > 0.0f ? x : 0.0f;
        case GATE_GELU: return 0.5f * x * (1.0f + tanhf(0.79788456080286535588f * (x + 0.044715f * x * x * x)));
        case GATE_GELU_ERF: return 0.5f * x * erfcf(-x * 0.70710678118654752440f);
        case GATE_GELU_QUICK: return x / (1.0f + expf(-1.702f * x));
        case GATE_SILU:
        default: return x / (1.0f + expf(-x));
    }
}

// How heads are turned by their positions.
struct Turn {
    u64 positions, factors;
    int mode, dims;
    int sections[4];
    float base, scale, weight, ramp[2], magnitude;
};

// Sine and cosine of a pair of a token among `tokens`.
void turn_of(const Turn& t, int pair, int token, int tokens, float* sine, float* cosine) {
    int stream = 0;
    if (t.mode == ROPE_SECTIONS) {
        int total = t.sections[0] + t.sections[1] + t.sections[2] + t.sections[3], at = pair % max(total, 1);
        for (stream = 0; stream < 3 && at >= t.sections[stream]; stream++) at -= t.sections[stream];
    }
    float position = (float)((const int*)t.positions)[stream * tokens + token];
    float plain = position * powf(t.base, -2.0f * pair / t.dims);
    if (t.factors) plain /= ((const float*)t.factors)[pair];
    float angle = t.scale * plain;
    if (t.weight != 0.0f) {
        float fallen = fminf(fmaxf((pair - t.ramp[0]) / fmaxf(t.ramp[1] - t.ramp[0], 0.001f), 0.0f), 1.0f);
        float mix = (1.0f - fallen) * t.weight;
        angle = angle * (1.0f - mix) + plain * mix;
    }
    sincosf(angle, sine, cosine);
    *sine *= t.magnitude;
    *cosine *= t.magnitude;
}

// Where the rows of sequences lie: `ids` has the pages of each, `stride` bytes after those of the one before.
struct Pages {
    u64 ids, sequences;
    i64 stride;
    int each, count, total;  // pages of a sequence, sequences, pages that there are
    int few;                 // runs of fewer tokens of one sequence are not for tensor cores
};

// Tokens come in tiles of 64. Which of a tile begin a run of tokens of one sequence, as bits: for whole warps.
u64 run_starts(const Pages& p, int first, int count) {
    u64 starts = 0;
    for (int half = 0; half < 2; half++) {
        int i = half * 32 + threadIdx.x % 32;
        const int* own = (const int*)p.sequences + first + i;
        bool starts_one = i < count && (i == 0 || own[0] != own[-1]);
        starts |= (u64)__ballot_sync(~0u, starts_one) << (32 * half);
    }
    return starts;
}

// The first token of the run that token `i` is in, and the token after its last.
int run_begin(u64 starts, int i) { return 63 - __clzll(starts & (~0ull >> (63 - i))); }
int run_end(u64 starts, int i, int count) {
    u64 after = i < 63 ? starts >> (i + 1) : 0;
    return after ? i + __ffsll(after) : count;
}
