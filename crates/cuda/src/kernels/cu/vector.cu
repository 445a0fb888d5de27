// Products of matrices with one row of activations, at the speed of memory. Compiled for one type of weights (WTYPE), for
// ROWS results of a warp at a time, with activations rounded to 8 bits or not (EXACT), of one matrix or of two whose results
// go into one gated function (PAIR), by blocks of WARPS warps. Or of one of many matrices, which a number tells for each row of
// results (EXPERTS == 1), or of several of them, whose results are added up as each counts (EXPERTS == 2).
//
// Every block rounds the activations, normed before if that is asked for, into its own shared memory: that is less work than
// another kernel and its way through memory. Meanwhile the first weights are on their way.

struct Part {
    u64 w;
    u64 start[4];
    u64 add, y;
    int rows, first;  // results of this part, and of those before it; for parts that are not there, more than there are
};

struct Vector {
    Part part[4];
    u64 x, norm;      // `norm` are factors, if the activations are normed first
    float eps;
    int k, parts, rows, gate, gap;
    // Of experts: their numbers, and how many there are; rows of activations of a token, and of results.
    int experts, step;
    u64 ids, marks;
    i64 ids_token, x_row, x_token, y_row, y_token;  // bytes
    int inputs, used;
    u64 weights;      // how much each counts, where results are added up
    int some, gap_behind;  // -1 is the number of no expert
};

#define FLOATS (WTYPE == F32 || WTYPE == F16 || WTYPE == BF16)
#define HALVES_DIFFER (WTYPE == Q6_K || WTYPE == Q2_K || WTYPE == Q3_K)
#define ADDS (!(WTYPE == Q8_0 || WTYPE == IQ4_NL || WTYPE == IQ4_XS || WTYPE == MXFP4))
#define SIGNED (!ADDS)
// Elements of one load of a lane.
#define UNIT (WTYPE == F32 ? 4 : FLOATS ? 8 : 32)
#define TOGETHER (PAIR ? 2 * ROWS : ROWS)
// Loads on their way: as many as registers have room for.
#define WIDE (WTYPE == Q8_0 || WTYPE == Q6_K || WTYPE == Q5_K || WTYPE == Q3_K)
#define DEEP (TOGETHER >= 4 ? 1 : TOGETHER == 1 ? (WIDE ? 3 : 4) : 2)

extern __shared__ uint4 memory[];

struct Piece {
#if FLOATS
    uint4 raw;
#else
    Raw<WTYPE> raw;
#endif
};

// Blocks of eight groups begin with 16 bytes for all of them: of those, every lane brings a word, and takes the others from
// its neighbours when it needs them.
#define HEADED (WTYPE == Q4_K || WTYPE == Q5_K)

void load_piece(Piece& piece, const Planes& planes, u32 at) {
#if FLOATS
    piece.raw = __ldcs((const uint4*)planes.at[0] + at);
#elif HEADED
    piece.raw.a = __ldcs((const uint4*)planes.at[0] + at);
    if (WTYPE == Q5_K) piece.raw.extra = __ldcs((const u32*)planes.at[1] + at);
    piece.raw.b.x = __ldg((const u32*)planes.at[WTYPE == Q5_K ? 2 : 1] + at / 8 * 4 + at % 4);
    piece.raw.scale = at & 7;
#else
    load_group<WTYPE>(piece.raw, planes, at);
#endif
}

// Activations as they are in shared memory, for one load of a lane.
struct Activations {
#if FLOATS
    float4 x[UNIT / 4];
#elif EXACT
    float4 x[8];
#else
    int4 low, high;
    float d, sums[2];
#endif
};

void load_activations(Activations& a, int unit, int units) {
#if FLOATS || EXACT
#pragma unroll
    for (int i = 0; i < UNIT / 4; i++) a.x[i] = ((const float4*)memory)[i * units + unit];
#else
    a.low = ((const int4*)memory)[unit];
    a.high = ((const int4*)memory)[units + unit];
#if HALVES_DIFFER
    float4 numbers = ((const float4*)(memory + 2 * units))[unit];
    a.d = numbers.x;
    a.sums[0] = numbers.y;
    a.sums[1] = numbers.z;
#else
    float2 numbers = ((const float2*)(memory + 2 * units))[unit];
    a.d = numbers.x;
    a.sums[0] = numbers.y;
#endif
#endif
}

// A piece times the activations that belong to it.
float times(const Piece& piece, const Activations& a) {
#if FLOATS
    const u32 words[4] = {piece.raw.x, piece.raw.y, piece.raw.z, piece.raw.w};
    float sum = 0.0f;
#if WTYPE == F32
    sum = __uint_as_float(words[0]) * a.x[0].x + __uint_as_float(words[1]) * a.x[0].y + __uint_as_float(words[2]) * a.x[0].z +
          __uint_as_float(words[3]) * a.x[0].w;
#else
    const float v[8] = {a.x[0].x, a.x[0].y, a.x[0].z, a.x[0].w, a.x[1].x, a.x[1].y, a.x[1].z, a.x[1].w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float low = WTYPE == F16 ? half_to_float((u16)words[i]) : bfloat_to_float((u16)words[i]);
        float high = WTYPE == F16 ? half_to_float((u16)(words[i] >> 16)) : bfloat_to_float((u16)(words[i] >> 16));
        sum += low * v[2 * i] + high * v[2 * i + 1];
    }
#endif
    return sum;
#else
    Group g;
#if HEADED
    Raw<WTYPE> raw = piece.raw;
    u32 quad = 15u << (threadIdx.x & 28), word = piece.raw.b.x;
    raw.b = make_uint4(__shfl_sync(quad, word, 0, 4), __shfl_sync(quad, word, 1, 4), __shfl_sync(quad, word, 2, 4),
                       __shfl_sync(quad, word, 3, 4));
    open_group<WTYPE>(raw, g);
#else
    open_group<WTYPE>(piece.raw, g);
#endif
#if EXACT
    float sums[2] = {0.0f, 0.0f}, plain[2] = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float4 v = a.x[i];
        float e0 = SIGNED ? (i8)g.code[i] : g.code[i] & 255, e1 = SIGNED ? (i8)(g.code[i] >> 8) : (g.code[i] >> 8) & 255;
        float e2 = SIGNED ? (i8)(g.code[i] >> 16) : (g.code[i] >> 16) & 255;
        float e3 = SIGNED ? (i8)(g.code[i] >> 24) : (g.code[i] >> 24) & 255;
        sums[i / 4] += e0 * v.x + e1 * v.y + e2 * v.z + e3 * v.w;
        plain[i / 4] += v.x + v.y + v.z + v.w;
    }
    return sums[0] * g.factor[0] + sums[1] * g.factor[1] + plain[0] * g.added[0] + plain[1] * g.added[1];
#else
    int first = __dp4a(g.code[0], a.low.x, __dp4a(g.code[1], a.low.y, __dp4a(g.code[2], a.low.z, __dp4a(g.code[3], a.low.w, 0))));
#if HALVES_DIFFER
    int second = __dp4a(g.code[4], a.high.x, __dp4a(g.code[5], a.high.y, __dp4a(g.code[6], a.high.z, __dp4a(g.code[7], a.high.w, 0))));
    return a.d * (g.factor[0] * first + g.factor[1] * second) + g.added[0] * a.sums[0] + g.added[1] * a.sums[1];
#else
    first = __dp4a(g.code[4], a.high.x, __dp4a(g.code[5], a.high.y, __dp4a(g.code[6], a.high.z, __dp4a(g.code[7], a.high.w, first))));
    float sum = a.d * g.factor[0] * first;
    return ADDS ? sum + g.added[0] * a.sums[0] : sum;
#endif
#endif
#endif
}

// Sums of squares of each warp's activations.
__shared__ float squares[WARPS];

// Brings the activations into shared memory, eight a thread at a time. Where they are normed, only with the norm's factors:
// what all of them are divided by is known when all have been seen, and the results are divided by it in the end.
void prepare(const Vector& v, u64 own_x, int units) {
    const float4* x = (const float4*)own_x;
    const float4* norm = (const float4*)v.norm;
    int groups = units * UNIT / 8, lane = threadIdx.x % 32;
    float sum_of_squares = 0.0f;
    for (int start = threadIdx.x - lane; start < groups; start += 32 * WARPS) {
        int i = start + lane;
        bool inside = i < groups;
        float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f), a = inside ? x[2 * i] : zero, b = inside ? x[2 * i + 1] : zero;
        if (v.norm) {
            float4 w = inside ? __ldg(norm + 2 * i) : zero, u = inside ? __ldg(norm + 2 * i + 1) : zero;
            sum_of_squares += a.x * a.x + a.y * a.y + a.z * a.z + a.w * a.w + b.x * b.x + b.y * b.y + b.z * b.z + b.w * b.w;
            a.x *= w.x; a.y *= w.y; a.z *= w.z; a.w *= w.w;
            b.x *= u.x; b.y *= u.y; b.z *= u.z; b.w *= u.w;
        }
#if FLOATS || EXACT
        if (inside) {
            const int n = UNIT / 4;
            ((float4*)memory)[2 * i % n * units + 2 * i / n] = a;
            ((float4*)memory)[(2 * i + 1) % n * units + (2 * i + 1) / n] = b;
        }
#else
        // Four lanes have the 32 that are rounded alike.
        // Magnitudes compare like their bits, and NaN is the largest; with it or an infinity, the scale is NaN.
        auto bits = [](float x) { return __float_as_uint(x) & 0x7fffffff; };
        u32 most = max(max(max(bits(a.x), bits(a.y)), max(bits(a.z), bits(a.w))),
                       max(max(bits(b.x), bits(b.y)), max(bits(b.z), bits(b.w))));
        most = max(most, __shfl_xor_sync(~0u, most, 1));
        most = max(most, __shfl_xor_sync(~0u, most, 2));
        float largest = __uint_as_float(most);
        float d = most >= 0x7f800000 ? __int_as_float(0x7fffffff) : largest * (1.0f / 127.0f);
        float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
        auto packed = [&](float4 f) {
            int q0 = __float2int_rn(f.x * inverse), q1 = __float2int_rn(f.y * inverse);
            int q2 = __float2int_rn(f.z * inverse), q3 = __float2int_rn(f.w * inverse);
            return (int)__byte_perm(__byte_perm(q0, q1, 0x0040), __byte_perm(q2, q3, 0x0040), 0x5410);
        };
        int2 codes = make_int2(packed(a), packed(b));
        int sum = __dp4a(codes.x, 0x01010101, __dp4a(codes.y, 0x01010101, 0));
        sum += __shfl_xor_sync(~0u, sum, 1);
#if !HALVES_DIFFER
        sum += __shfl_xor_sync(~0u, sum, 2);
#endif
        if (inside) {
            int unit = i / 4, j = i % 4;
            ((int2*)(memory + (j < 2 ? 0 : units)))[unit * 2 + j % 2] = codes;
#if HALVES_DIFFER
            float* numbers = (float*)(memory + 2 * units) + 4 * unit;
            if (j % 2 == 0) numbers[1 + j / 2] = d * sum;
            if (j == 0) numbers[0] = d;
#else
            if (j == 0) ((float2*)(memory + 2 * units))[unit] = make_float2(d, d * sum);
#endif
        }
#endif
    }
    if (v.norm) {
        sum_of_squares = warp_sum(sum_of_squares);
        if (lane == 0) squares[threadIdx.x / 32] = sum_of_squares;
    }
    __syncthreads();
}

// What normed activations are still to be multiplied with.
float norm_factor(const Vector& v) {
    float sum = threadIdx.x % 32 < WARPS ? squares[threadIdx.x % 32] : 0.0f;
    return 1.0f / sqrtf(warp_sum(sum) / v.k + v.eps);
}

#if EXPERTS == 2
#define MAX_USED 32

// The activations of all of a token's experts lie one after the other, and so do the elements of a row of results.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1024 / (32 * WARPS)) vector_product(const __grid_constant__ Vector v) {
    // Of those that there are: rows before theirs, activations before theirs, and how much they count.
    __shared__ u32 rows_of[MAX_USED];
    __shared__ int unit_of[MAX_USED], count;
    __shared__ float weight_of[MAX_USED];
    let_others_begin();
    wait_for_others();
    const int each = v.k / UNIT, lane = threadIdx.x % 32, token = blockIdx.y;
    if (threadIdx.x < 32) {
        int expert = lane < v.used ? ((const int*)(v.ids + token * v.ids_token))[lane] : -1;
        bool known = expert >= 0 && expert < v.experts;
        if (lane < v.used && !known && !(v.some && expert == -1) && blockIdx.x == 0) mark(v.marks, v.step, expert, v.experts);
        u32 all = __ballot_sync(~0u, known);
        int place = __popc(all & ((1u << lane) - 1));
        if (known) {
            rows_of[place] = (u32)expert * v.rows;
            unit_of[place] = lane * each;
            weight_of[place] = ((const float*)v.weights)[token * v.used + lane];
        }
        if (lane == 0) count = __popc(all);
    }
    __syncthreads();
    const int units = each * count;
    auto put = [&](int row, float sum) {
        if (v.part[0].add) sum += ((const float*)(v.part[0].add + token * v.y_token))[row];
        ((float*)(v.part[0].y + token * v.y_token))[row] = sum;
    };
    if (count == 0) {
        for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < v.rows; row += gridDim.x * blockDim.x) put(row, 0.0f);
        return;
    }
    Planes planes = planes_of(v.part[0].w, v.part[0].start);
    bool ready = false;
    for (int row = blockIdx.x * WARPS + threadIdx.x / 32; row < v.rows || !ready; row += gridDim.x * WARPS) {
        float sum = 0.0f;
        for (int first = lane; first < units || !ready; first += 32 * DEEP) {
            Piece pieces[DEEP];
#pragma unroll
            for (int d = 0; d < DEEP; d++) {
                int unit = min(first + 32 * d, units - 1), slot = unit / each;
                load_piece(pieces[d], planes, (rows_of[slot] + min(row, v.rows - 1)) * each + unit % each);
            }
            if (!ready) {
                prepare(v, v.x + token * v.x_token, each * v.used);
                ready = true;
            }
#pragma unroll
            for (int d = 0; d < DEEP; d++) {
                int unit = first + 32 * d;
                if (unit >= units) break;
                Activations a;
                load_activations(a, unit_of[unit / each] + unit % each, each * v.used);
                sum += weight_of[unit / each] * times(pieces[d], a);
            }
        }
        sum = warp_sum(sum);
        if (lane == 0 && row < v.rows) put(row, sum);
    }
}
#else
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1024 / (32 * WARPS)) vector_product(const __grid_constant__ Vector v) {
    let_others_begin();
    const int units = v.k / UNIT, lane = threadIdx.x % 32;
#if EXPERTS
    wait_for_others();
    int slot = blockIdx.y % v.used, token = blockIdx.y / v.used;
    int expert = ((const int*)(v.ids + token * v.ids_token))[slot];
    const u64 own_x = v.x + slot % v.inputs * v.x_row + token * v.x_token, own_y = v.part[0].y + slot * v.y_row + token * v.y_token;
    const u32 own_rows = (u32)expert * v.rows;
    if (expert < 0 || expert >= v.experts) {
        bool none = v.some && expert == -1;
        if (!none && blockIdx.x == 0 && threadIdx.x == 0) mark(v.marks, v.step, expert, v.experts);
        // What no expert makes of a token is 0, and so is a gated function of it times itself.
        for (int row = blockIdx.x * blockDim.x + threadIdx.x; none && row < v.rows; row += gridDim.x * blockDim.x)
            ((float*)own_y)[row] = 0.0f;
        return;
    }
#else
    const u64 own_x = v.x, own_y = v.part[0].y;
    const u32 own_rows = 0;
#endif
    int row = (blockIdx.x * WARPS + threadIdx.x / 32) * ROWS;
    bool ready = false;
    float factor = 1.0f;
    if (row >= v.rows) {
        wait_for_others();
        prepare(v, own_x, units);
        return;
    }
    for (; row < v.rows; row += gridDim.x * WARPS * ROWS) {
        // All rows that go together are of one part, or of both.
        int number = PAIR ? 0 : (row >= v.part[1].first) + (row >= v.part[2].first) + (row >= v.part[3].first);
        const Part& part = v.part[number];
        Planes planes[1 + PAIR];
#pragma unroll
        for (int p = 0; p < 1 + PAIR; p++) planes[p] = planes_of(v.part[number + p].w, v.part[number + p].start);
        u32 base[ROWS];
#pragma unroll
        for (int n = 0; n < ROWS; n++) base[n] = (own_rows + min(row + n, v.rows - 1) - (PAIR ? 0 : part.first)) * units + lane;
        float sums[TOGETHER] = {};
        Piece pieces[DEEP][TOGETHER];
        int unit = 0;
        // Whole lines of 32 units, DEEP at a time; then what is left.
        do {
            bool whole = unit + 32 * DEEP <= units;
            if (whole) {
#pragma unroll
                for (int d = 0; d < DEEP; d++)
#pragma unroll
                    for (int n = 0; n < TOGETHER; n++) load_piece(pieces[d][n], planes[n % (1 + PAIR)], base[n / (1 + PAIR)] + unit + 32 * d);
            }
            if (!ready) {
                // Everything above is weights, which nothing writes.
                wait_for_others();
                prepare(v, own_x, units);
                if (v.norm) factor = norm_factor(v);
                ready = true;
            }
            if (!whole) break;
#pragma unroll
            for (int d = 0; d < DEEP; d++) {
                Activations a;
                load_activations(a, unit + 32 * d + lane, units);
#pragma unroll
                for (int n = 0; n < TOGETHER; n++) sums[n] += times(pieces[d][n], a);
            }
            unit += 32 * DEEP;
        } while (unit < units);
        for (; unit + lane < units; unit += 32) {
            Activations a;
            load_activations(a, unit + lane, units);
#pragma unroll
            for (int n = 0; n < TOGETHER; n++) load_piece(pieces[0][n], planes[n % (1 + PAIR)], base[n / (1 + PAIR)] + unit);
#pragma unroll
            for (int n = 0; n < TOGETHER; n++) sums[n] += times(pieces[0][n], a);
        }
#pragma unroll
        for (int n = 0; n < TOGETHER; n++) sums[n] = warp_sum(sums[n]) * factor;
        if (lane) continue;
#if PAIR
#pragma unroll
        for (int n = 0; n < ROWS; n++)
            if (row + n < v.rows) ((float*)own_y)[row + n] = gate_function(v.gate, sums[2 * n]) * sums[2 * n + 1];
#elif EXPERTS
#pragma unroll
        for (int n = 0; n < ROWS; n++)
            if (row + n < v.rows) ((float*)own_y)[row + n] = sums[n];
#else
#pragma unroll
        for (int n = 0; n < ROWS; n++) {
            if (row + n >= v.rows) break;
            int at = row + n - part.first;
            float sum = sums[n];
            if (part.add) sum += ((const float*)part.add)[at];
            ((float*)part.y)[at] = sum;
        }
#endif
    }
}
#endif
