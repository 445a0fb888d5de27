// Products of matrices with one row of activations, at the speed of memory. Compiled for one type of weights (WTYPE), for
// ROWS results of a warp at a time, with activations rounded to 8 bits or not (EXACT), of one matrix or of two whose results
// go into one gated function (PAIR).
//
// Every block rounds the activations, normed before if that is asked for, into its own shared memory: that is less work than
// another kernel and its way through memory. Meanwhile the first weights are on their way.

struct Part {
    u64 w;
    u64 start[4];
    u64 add, y;
    int rows, first;  // results of this part, and of those before it
};

struct Vector {
    Part part[4];
    u64 x, norm;      // `norm` are factors, if the activations are normed first
    float eps;
    int k, parts, rows, gate;
};

#define FLOATS (WTYPE == F32 || WTYPE == F16 || WTYPE == BF16)
#define HALVES_DIFFER (WTYPE == Q6_K || WTYPE == Q2_K || WTYPE == Q3_K)
#define ADDS (!(WTYPE == Q8_0 || WTYPE == IQ4_NL || WTYPE == IQ4_XS || WTYPE == MXFP4))
#define SIGNED (!ADDS)
// Elements of one load of a lane.
#define UNIT (WTYPE == F32 ? 4 : FLOATS ? 8 : 32)
#define TOGETHER (PAIR ? 2 * ROWS : ROWS)
#define DEEP (TOGETHER >= 4 ? 1 : 4 / TOGETHER)
#define WARPS 16
#define AHEAD 2
#define FETCHED 3  // rows that are asked for ahead

extern __shared__ uint4 memory[];

struct Piece {
#if FLOATS
    uint4 raw;
#else
    Raw<WTYPE> raw;
#endif
};

void load_piece(Piece& piece, const Planes& planes, i64 at) {
#if FLOATS
    piece.raw = __ldcs((const uint4*)planes.at[0] + at);
#else
    load_group<WTYPE>(piece.raw, planes, at);
#endif
}

// Eighths of the bytes that one load's elements take in each plane.
int plane_eighths(int plane) {
    const int bytes[4] = {
        FLOATS || WTYPE != Q8_0 && WTYPE != Q2_K && WTYPE != Q3_K ? 128 : WTYPE == Q8_0 ? 256 : 64,
        FLOATS ? 0 : WTYPE == Q4_1 || WTYPE == Q5_0 || WTYPE == Q5_1 || WTYPE == Q5_K || WTYPE == Q3_K ? 32
            : WTYPE == Q6_K ? 64 : WTYPE == IQ4_XS || WTYPE == MXFP4 ? 8 : 16,
        WTYPE == Q5_0 || WTYPE == Q5_K || WTYPE == Q6_K ? 16 : WTYPE == Q5_1 ? 32 : WTYPE == Q2_K ? 4 : WTYPE == Q3_K ? 12 : 0,
        WTYPE == Q6_K || WTYPE == Q3_K ? 2 : 0,
    };
    return bytes[plane];
}

// Asks for a row, so that it is near when its turn comes.
void fetch_row(const Planes& planes, i64 base, int units) {
    for (int p = 0; p < 4; p++) {
        if (!plane_eighths(p)) continue;
        u64 at = planes.at[p] + base * plane_eighths(p) / 8, end = at + (i64)units * plane_eighths(p) / 8;
        for (at += threadIdx.x % 32 * 128; at < end; at += 32 * 128) asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
    }
}

// A piece times the activations that belong to it.
float times(const Piece& piece, int unit, int units) {
#if FLOATS
    const float4* x = (const float4*)memory;
    float sum = 0.0f;
    u32 words[4] = {piece.raw.x, piece.raw.y, piece.raw.z, piece.raw.w};
#if WTYPE == F32
    float4 a = x[unit];
    sum = __uint_as_float(words[0]) * a.x + __uint_as_float(words[1]) * a.y + __uint_as_float(words[2]) * a.z +
          __uint_as_float(words[3]) * a.w;
#else
    float4 a = x[unit], b = x[units + unit];
    float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    for (int i = 0; i < 4; i++) {
        float low = WTYPE == F16 ? half_to_float((u16)words[i]) : bfloat_to_float((u16)words[i]);
        float high = WTYPE == F16 ? half_to_float((u16)(words[i] >> 16)) : bfloat_to_float((u16)(words[i] >> 16));
        sum += low * v[2 * i] + high * v[2 * i + 1];
    }
#endif
    return sum;
#else
    Group g;
    open_group<WTYPE>(piece.raw, g);
#if EXACT
    const float4* x = (const float4*)memory;
    float sums[2] = {0.0f, 0.0f}, plain[2] = {0.0f, 0.0f};
    for (int i = 0; i < 8; i++) {
        float4 v = x[i * units + unit];
        float a = SIGNED ? (i8)g.code[i] : g.code[i] & 255, b = SIGNED ? (i8)(g.code[i] >> 8) : (g.code[i] >> 8) & 255;
        float c = SIGNED ? (i8)(g.code[i] >> 16) : (g.code[i] >> 16) & 255, d = SIGNED ? (i8)(g.code[i] >> 24) : (g.code[i] >> 24) & 255;
        sums[i / 4] += a * v.x + b * v.y + c * v.z + d * v.w;
        plain[i / 4] += v.x + v.y + v.z + v.w;
    }
    return sums[0] * g.factor[0] + sums[1] * g.factor[1] + plain[0] * g.added[0] + plain[1] * g.added[1];
#else
    int4 low = ((const int4*)memory)[unit], high = ((const int4*)memory)[units + unit];
    const float* numbers = (const float*)(memory + 2 * units);
    int first = __dp4a(g.code[0], low.x, __dp4a(g.code[1], low.y, __dp4a(g.code[2], low.z, __dp4a(g.code[3], low.w, 0))));
    int second = __dp4a(g.code[4], high.x, __dp4a(g.code[5], high.y, __dp4a(g.code[6], high.z, __dp4a(g.code[7], high.w, 0))));
    float d = numbers[unit];
#if HALVES_DIFFER
    return d * (g.factor[0] * first + g.factor[1] * second) + g.added[0] * numbers[units + unit] + g.added[1] * numbers[2 * units + unit];
#else
    float sum = d * g.factor[0] * (first + second);
    if (ADDS) sum += g.added[0] * (numbers[units + unit] + numbers[2 * units + unit]);
    return sum;
#endif
#endif
#endif
}

// Sums of squares of each warp's activations.
__shared__ float squares[WARPS];

// Brings the activations into shared memory. Where they are normed, only with the norm's factors: what all of them are
// divided by is known when all have been seen, and the results are divided by it in the end.
void prepare(const Vector& v, int units) {
    const float4* x = (const float4*)v.x;
    const float4* norm = (const float4*)v.norm;
    int fours = v.k / 4;
    float sum_of_squares = 0.0f;
    // Several loads are on their way before the first is used.
    for (int start = threadIdx.x / 32 * 32; start < fours; start += AHEAD * blockDim.x) {
        float4 values[AHEAD], factors[AHEAD];
        for (int n = 0; n < AHEAD; n++) {
            int i = start + n * blockDim.x + threadIdx.x % 32;
            values[n] = i < fours ? x[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (v.norm && i < fours) factors[n] = __ldg(norm + i);
        }
        for (int n = 0; n < AHEAD; n++) {
            int base = start + n * blockDim.x, i = base + threadIdx.x % 32;
            if (base >= fours) break;
            float4 a = values[n];
            if (v.norm && i < fours) {
                float4 w = factors[n];
                sum_of_squares += a.x * a.x + a.y * a.y + a.z * a.z + a.w * a.w;
                a.x *= w.x; a.y *= w.y; a.z *= w.z; a.w *= w.w;
            }
#if FLOATS || EXACT
            if (i < fours) ((float4*)memory)[i % (UNIT / 4) * units + i / (UNIT / 4)] = a;
#else
            float largest = fmaxf(fmaxf(fabsf(a.x), fabsf(a.y)), fmaxf(fabsf(a.z), fabsf(a.w)));
            for (int step = 1; step < 8; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
            float d = largest / 127.0f, inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
            int q0 = __float2int_rn(a.x * inverse), q1 = __float2int_rn(a.y * inverse);
            int q2 = __float2int_rn(a.z * inverse), q3 = __float2int_rn(a.w * inverse);
            int sum = q0 + q1 + q2 + q3;
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            if (i < fours) {
                int unit = i / 8, j = i % 8;
                int* codes = (int*)(memory + (j < 4 ? 0 : units));
                codes[unit * 4 + j % 4] = (q0 & 255) | (q1 & 255) << 8 | (q2 & 255) << 16 | (u32)q3 << 24;
                float* numbers = (float*)(memory + 2 * units);
                if (j == 0) numbers[unit] = d;
                if (j % 4 == 0) numbers[(1 + j / 4) * units + unit] = d * sum;
            }
#endif
        }
    }
    if (v.norm) {
        sum_of_squares = warp_sum(sum_of_squares);
        if (threadIdx.x % 32 == 0) squares[threadIdx.x / 32] = sum_of_squares;
    }
    __syncthreads();
}

// What normed activations are still to be multiplied with.
float norm_factor(const Vector& v) {
    float sum = threadIdx.x % 32 < WARPS ? squares[threadIdx.x % 32] : 0.0f;
    return 1.0f / sqrtf(warp_sum(sum) / v.k + v.eps);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 2) vector_product(const __grid_constant__ Vector v) {
    let_others_begin();
    int units = v.k / UNIT, lane = threadIdx.x % 32;
    bool ready = false;
    float factor = 1.0f;
    const int stride = gridDim.x * WARPS * ROWS;
    // The part that a row is of, and its number there; with pairs, rows of both parts go together.
    auto part_of = [&](int row, int n) {
        int r = min(row + (PAIR ? n / 2 : n), v.rows - 1), part = PAIR ? n % 2 : 0;
        if (!PAIR) while (part + 1 < v.parts && r >= v.part[part + 1].first) part++;
        return part;
    };
    auto row_of = [&](int row, int n, int part) {
        return min(row + (PAIR ? n / 2 : n), v.rows - 1) - (PAIR ? 0 : v.part[part].first);
    };
    auto fetch = [&](int row) {
        for (int n = 0; n < TOGETHER && row < v.rows; n++) {
            int part = part_of(row, n);
            fetch_row(planes_of(v.part[part].w, v.part[part].start), (i64)row_of(row, n, part) * units, units);
        }
    };
    int row = (blockIdx.x * WARPS + threadIdx.x / 32) * ROWS;
    for (int ahead = 1; ahead < FETCHED; ahead++) fetch(row + ahead * stride);
    for (;; row += stride) {
        Planes planes[TOGETHER];
        i64 base[TOGETHER];
        for (int n = 0; n < TOGETHER; n++) {
            int part = part_of(row, n);
            planes[n] = planes_of(v.part[part].w, v.part[part].start);
            base[n] = (i64)row_of(row, n, part) * units;
        }
        fetch(row + FETCHED * stride);
        float sums[TOGETHER] = {};
        Piece pieces[DEEP][TOGETHER];
        bool any = row < v.rows;
        for (int unit = lane; unit < units || !ready; unit += 32 * DEEP) {
            for (int d = 0; d < DEEP; d++)
                for (int n = 0; n < TOGETHER; n++)
                    if (any && unit + 32 * d < units) load_piece(pieces[d][n], planes[n], base[n] + unit + 32 * d);
            if (!ready) {
                // Everything above is weights, which nobody writes.
                wait_for_others();
                prepare(v, units);
                if (v.norm) factor = norm_factor(v);
                ready = true;
            }
            for (int d = 0; d < DEEP; d++)
                for (int n = 0; n < TOGETHER; n++)
                    if (any && unit + 32 * d < units) sums[n] += times(pieces[d][n], unit + 32 * d, units);
        }
        if (!any) return;
        for (int n = 0; n < TOGETHER; n++) sums[n] = warp_sum(sums[n]) * factor;
        if (lane) continue;
#if PAIR
        for (int n = 0; n < ROWS; n++)
            if (row + n < v.rows) ((float*)v.part[0].y)[row + n] = gate_function(v.gate, sums[2 * n]) * sums[2 * n + 1];
#else
        for (int n = 0; n < ROWS; n++) {
            if (row + n >= v.rows) break;
            int number = part_of(row, n), at = row_of(row, n, number);
            const Part& part = v.part[number];
            float sum = sums[n];
            if (part.add) sum += ((const float*)part.add)[at];
            ((float*)part.y)[at] = sum;
        }
#endif
    }
}
