// Every op, for every layout and type that `supports` accepts: one way each, correct rather than fast.
struct Task {
    Tensor in[8];
    Tensor out;
    i64 p[12];
    float f[10];
    int op;
    int step;
    u64 marks;
};

struct At { i64 i, j, k, l; };

__noinline__ At coordinates(i64 index, const i64* ne) {
    At at;
    at.i = index % ne[0]; index /= ne[0];
    at.j = index % ne[1]; index /= ne[1];
    at.k = index % ne[2];
    at.l = index / ne[2];
    return at;
}
i64 elements(const i64* ne) { return ne[0] * ne[1] * ne[2] * ne[3]; }
u64 place(const Tensor& t, const At& at) { return t.at + at.i * t.nb[0] + at.j * t.nb[1] + at.k * t.nb[2] + at.l * t.nb[3]; }
float element(const Tensor& t, const At& at) { return element(t, at.i, at.j, at.k, at.l); }
void store(const Tensor& t, const At& at, float x) { store_plain(t.dtype, place(t, at), x); }
i64 integer(const Tensor& t, i64 i, i64 j, i64 k, i64 l) {
    u64 at = t.at + i * t.nb[0] + j * t.nb[1] + k * t.nb[2] + l * t.nb[3];
    return t.dtype == I64 ? *(const i64*)at : (i64)*(const int*)at;
}
// Number `n` of a list, which may lie in any dimensions.
i64 listed_integer(const Tensor& t, i64 n) { At at = coordinates(n, t.ne); return integer(t, at.i, at.j, at.k, at.l); }
float listed_element(const Tensor& t, i64 n) { return element(t, coordinates(n, t.ne)); }

#define EACH(index, count) \
    for (i64 index = blockIdx.x * (i64)blockDim.x + threadIdx.x; index < (count); index += gridDim.x * (i64)blockDim.x)
#define EACH_BLOCK(index, count) for (i64 index = blockIdx.x; index < (count); index += gridDim.x)
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(256) op_##name(const __grid_constant__ Task t)

// --- encoding ---

__noinline__ void encode_block(int dtype, const float* x, u8* b) {
    float largest = 0.0f, low = x[0], high = x[0];
    for (int e = 0; e < 32; e++) {
        if (fabsf(x[e]) > fabsf(largest)) largest = x[e];
        low = fminf(low, x[e]);
        high = fmaxf(high, x[e]);
    }
    bool minimum = dtype == Q4_1 || dtype == Q5_1;
    float top = dtype == Q4_1 ? 15.0f : dtype == Q5_1 ? 31.0f : dtype == Q4_0 ? -8.0f : dtype == Q5_0 ? -16.0f : 127.0f;
    float scale = minimum ? (high - low) / top : (dtype == Q8_0 ? fabsf(largest) : largest) / top;
    float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
    // All these blocks begin with their scale and have an even number of bytes.
    *(u16*)(b + Q4_0_SCALE_AT) = float_to_half(scale);
    if (dtype == Q8_0) {
        for (int e = 0; e < 32; e++) {
            float level = roundf(x[e] * inverse);
            b[Q8_0_CODES_AT + e] = isfinite(level) ? (i8)level : 0;
        }
        return;
    }
    if (minimum) *(u16*)(b + Q4_1_MIN_AT) = float_to_half(low);
    int most = dtype == Q4_0 || dtype == Q4_1 ? 15 : 31;
    u32 bits = 0;
    u8* high_bits = b + (minimum ? Q5_1_HIGH_BITS_AT : Q5_0_HIGH_BITS_AT);
    u8* nibbles = b + (most == 15 ? (minimum ? Q4_1_CODES_AT : Q4_0_CODES_AT) : (minimum ? Q5_1_CODES_AT : Q5_0_CODES_AT));
    for (int e = 0; e < 32; e++) {
        float level = minimum ? (x[e] - low) * inverse + 0.5f : x[e] * inverse + (dtype == Q4_0 ? 8.5f : 16.5f);
        int code = min(most, max(0, (int)level));
        bits |= (u32)(code >> 4) << e;
        if (e < 16) nibbles[e] = code & 15;
        else nibbles[e - 16] |= (code & 15) << 4;
    }
    if (most == 31)
        for (int i = 0; i < 4; i++) high_bits[i] = bits >> (8 * i);
}

// --- movement ---

// Elements in their order, from one shape and type to another; `p[0]` is the bytes of a block if only blocks are moved.
KERNEL(copy) {
    wait_for_others();
    const Tensor &x = t.in[0], &y = t.out;
    if (t.p[0]) {
        i64 step = t.p[1], from[4] = {x.ne[0] / step, x.ne[1], x.ne[2], x.ne[3]}, to[4] = {y.ne[0] / step, y.ne[1], y.ne[2], y.ne[3]};
        EACH(i, elements(to)) {
            const u8* source = (const u8*)place(x, coordinates(i, from));
            u8* target = (u8*)place(y, coordinates(i, to));
            switch (t.p[0]) {
                case 4: *(u32*)target = *(const u32*)source; break;
                case 2: *(u16*)target = *(const u16*)source; break;
                case 8: *(u64*)target = *(const u64*)source; break;
                default: for (int n = 0; n < t.p[0]; n++) target[n] = source[n];
            }
        }
        return;
    }
    int block = block_elements(y.dtype);
    if (block == 1) {
        EACH(i, elements(y.ne)) store(y, coordinates(i, y.ne), element(x, coordinates(i, x.ne)));
        return;
    }
    i64 to[4] = {y.ne[0] / 32, y.ne[1], y.ne[2], y.ne[3]};
    EACH(i, elements(to)) {
        float values[32];
        for (int e = 0; e < 32; e++) values[e] = element(x, coordinates(32 * i + e, x.ne));
        encode_block(y.dtype, values, (u8*)place(y, coordinates(i, to)));
    }
}

// `p[0]` bytes as they are; both ends are aligned.
KERNEL(move) {
    wait_for_others();
    EACH(i, t.p[0] / 16) ((uint4*)t.out.at)[i] = ((const uint4*)t.in[0].at)[i];
    EACH(i, t.p[0] % 16) ((u8*)t.out.at)[t.p[0] / 16 * 16 + i] = ((const u8*)t.in[0].at)[t.p[0] / 16 * 16 + i];
}

// Blocks to other places. `p[0..4]`: padding before, the shifts of a roll, or where in the result the operand goes.
// `p[8]` bytes and `p[9]` elements of a block.
KERNEL(rearrange) {
    wait_for_others();
    const Tensor &x = t.in[0], &y = t.out;
    i64 from[4] = {x.ne[0] / t.p[9], x.ne[1], x.ne[2], x.ne[3]}, to[4] = {y.ne[0] / t.p[9], y.ne[1], y.ne[2], y.ne[3]};
    EACH(i, elements(t.op == REARRANGE_PLACE ? from : to)) {
        At a = coordinates(i, t.op == REARRANGE_PLACE ? from : to), b = a;
        bool inside = true;
        i64* c[4] = {&b.i, &b.j, &b.k, &b.l};
        for (int d = 0; d < 4; d++) {
            if (t.op == REARRANGE_REPEAT) *c[d] %= from[d];
            if (t.op == REARRANGE_PAD) {
                *c[d] -= t.p[d];
                inside = inside && *c[d] >= 0 && *c[d] < from[d];
            }
            if (t.op == REARRANGE_ROLL) *c[d] = ((*c[d] - t.p[d]) % to[d] + to[d]) % to[d];
            if (t.op == REARRANGE_PLACE) *c[d] += t.p[d];
        }
        const u8* source = (const u8*)place(x, t.op == REARRANGE_PLACE ? a : b);
        u8* target = (u8*)place(y, t.op == REARRANGE_PLACE ? b : a);
        for (int n = 0; n < t.p[8]; n++) target[n] = inside ? source[n] : 0;
    }
}

// `in[0]` laid over or added to the result at offset `p[3]` with strides `p[0..3]`.
KERNEL(patch) {
    wait_for_others();
    const Tensor& x = t.in[0];
    i64 step = t.p[5], from[4] = {x.ne[0] / step, x.ne[1], x.ne[2], x.ne[3]};
    EACH(i, elements(from)) {
        At a = coordinates(i, from);
        u64 target = t.out.at + t.p[3] + a.i * t.p[4] + a.j * t.p[0] + a.k * t.p[1] + a.l * t.p[2];
        if (t.op == PATCH_ADD) store_plain(x.dtype, target, load_plain(x.dtype, target) + element(x, a));
        else /* PATCH_SET */ for (int n = 0; n < t.p[4]; n++) ((u8*)target)[n] = ((const u8*)place(x, a))[n];
    }
}

KERNEL(arange) {
    wait_for_others();
    EACH(i, elements(t.out.ne)) store(t.out, coordinates(i, t.out.ne), t.f[0] + t.f[1] * (float)i);
}

// Whether all indices are rows, or -1 where that is allowed; one who finds another says so.
bool indices_fit(const Tensor& indices, i64 rows, bool skips, const Task& t) {
    __shared__ int bad;
    if (threadIdx.x == 0) bad = 0;
    __syncthreads();
    i64 count = elements(indices.ne);
    for (i64 n = threadIdx.x; n < count; n += blockDim.x) {
        At a = coordinates(n, indices.ne);
        i64 index = integer(indices, a.i, a.j, a.k, a.l);
        if ((index < 0 || index >= rows) && !(skips && index == -1)) {
            if (atomicExch(&bad, 1) == 0 && blockIdx.x == 0) mark(t.marks, t.step, index, rows);
        }
    }
    __syncthreads();
    return !bad;
}

// Whether two indices of rows that are written together may be the same: some index is not above the one before.
bool indices_may_repeat(const Tensor& indices) {
    __shared__ int tied;
    if (threadIdx.x == 0) tied = 0;
    __syncthreads();
    i64 count = elements(indices.ne);
    for (i64 n = threadIdx.x; n < count; n += blockDim.x) {
        At a = coordinates(n, indices.ne);
        if (a.i > 0 && integer(indices, a.i, a.j, a.k, a.l) <= integer(indices, a.i - 1, a.j, a.k, a.l)) tied = 1;
    }
    __syncthreads();
    return tied;
}

KERNEL(get_rows) {
    wait_for_others();
    const Tensor &x = t.in[0], &indices = t.in[1], &y = t.out;
    if (!indices_fit(indices, x.ne[1], false, t)) return;
    EACH(n, elements(y.ne)) {
        At a = coordinates(n, y.ne);
        i64 row = integer(indices, a.j, a.k, a.l, 0);
        if (y.dtype == I32) *(int*)place(y, a) = *(const int*)(x.at + a.i * x.nb[0] + row * x.nb[1] + a.k * x.nb[2] + a.l * x.nb[3]);
        else store(y, a, element(x, a.i, row, a.k, a.l));
    }
}

// Where two rows have the same place, the later one is written.
KERNEL(set_rows) {
    wait_for_others();
    const Tensor &x = t.in[1], &indices = t.in[2], &y = t.out;
    if (elements(x.ne) == 0 || !indices_fit(indices, y.ne[1], true, t)) return;
    bool tied = indices_may_repeat(indices);
    int block = block_elements(y.dtype);
    i64 from[4] = {x.ne[0] / block, x.ne[1], x.ne[2], x.ne[3]};
    EACH(n, elements(from)) {
        At a = coordinates(n, from);
        i64 k = a.k % indices.ne[1], l = a.l % indices.ne[2], row = integer(indices, a.j, k, l, 0);
        bool later = false;
        for (i64 other = a.j + 1; tied && !later && other < x.ne[1]; other++) later = integer(indices, other, k, l, 0) == row;
        if (row < 0 || later) continue;
        u64 target = y.at + a.i * y.nb[0] + row * y.nb[1] + a.k * y.nb[2] + a.l * y.nb[3];
        if (block == 1) {
            store_plain(y.dtype, target, element(x, a));
            continue;
        }
        float values[32];
        for (int e = 0; e < 32; e++) values[e] = element(x, 32 * a.i + e, a.j, a.k, a.l);
        encode_block(y.dtype, values, (u8*)target);
    }
}

// --- elements ---

KERNEL(binary) {
    wait_for_others();
    const Tensor &x = t.in[0], &z = t.in[1];
    EACH(n, elements(t.out.ne)) {
        At a = coordinates(n, t.out.ne), b = {a.i % z.ne[0], a.j % z.ne[1], a.k % z.ne[2], a.l % z.ne[3]};
        float u = element(x, a), v = element(z, b);
        store(t.out, a, t.op == BINARY_ADD ? u + v : t.op == BINARY_SUB ? u - v : t.op == BINARY_MUL ? u * v : /* BINARY_DIV */ u / v);
    }
}

float hard_sigmoid(float x) { return fminf(fmaxf((x + 3.0f) / 6.0f, 0.0f), 1.0f); }

__noinline__ float function_of(int op, float x, float a, float b) {
    switch (op) {
        case UNARY_SQR: return x * x;
        case UNARY_SQRT: return sqrtf(x);
        case UNARY_LOG: return logf(x);
        case UNARY_EXP: return expf(x);
        case UNARY_SIN: return sinf(x);
        case UNARY_COS: return cosf(x);
        case UNARY_NEG: return -x;
        case UNARY_ABS: return fabsf(x);
        case UNARY_SGN: return (float)((x > 0.0f) - (x < 0.0f));
        case UNARY_STEP: return x > 0.0f ? 1.0f : 0.0f;
        case UNARY_RELU: return gate_function(GATE_RELU, x);
        case UNARY_GELU: return gate_function(GATE_GELU, x);
        case UNARY_GELU_ERF: return gate_function(GATE_GELU_ERF, x);
        case UNARY_GELU_QUICK: return gate_function(GATE_GELU_QUICK, x);
        case UNARY_SILU: return gate_function(GATE_SILU, x);
        case UNARY_SIGMOID: return 1.0f / (1.0f + expf(-x));
        case UNARY_TANH: return tanhf(x);
        case UNARY_ELU: return x > 0.0f ? x : expm1f(x);
        case UNARY_HARD_SWISH: return x * hard_sigmoid(x);
        case UNARY_HARD_SIGMOID: return hard_sigmoid(x);
        case UNARY_SOFTPLUS: return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
        case UNARY_SCALE: return a * x + b;
        case UNARY_CLAMP: { float y = x > b ? b : x; return y < a ? a : y; }
        case UNARY_LEAKY_RELU: return x > 0.0f ? x : a * x;
    }
    return x;
}

KERNEL(unary) {
    wait_for_others();
    EACH(n, elements(t.out.ne)) {
        At a = coordinates(n, t.out.ne);
        store(t.out, a, function_of(t.op, element(t.in[0], a), t.f[0], t.f[1]));
    }
}

// `p[0]` operands; with one, its rows hold both halves, `p[1]` says in which order.
KERNEL(gated) {
    wait_for_others();
    i64 half = t.out.ne[0];
    EACH(n, elements(t.out.ne)) {
        At a = coordinates(n, t.out.ne);
        float u, v;
        if (t.p[0] == 2) {
            u = element(t.in[0], a);
            v = element(t.in[1], a);
        } else {
            u = element(t.in[0], a.i + (t.p[1] ? half : 0), a.j, a.k, a.l);
            v = element(t.in[0], a.i + (t.p[1] ? 0 : half), a.j, a.k, a.l);
        }
        store(t.out, a, gate_function(t.op, u) * v);
    }
}

// --- reductions and norms: a block of threads a row ---

KERNEL(sum) {
    wait_for_others();
    float sum = 0.0f;
    i64 count = elements(t.in[0].ne);
    for (i64 n = threadIdx.x; n < count; n += blockDim.x) sum += element(t.in[0], coordinates(n, t.in[0].ne));
    sum = block_sum(sum);
    if (threadIdx.x == 0) store_plain(t.out.dtype, t.out.at, sum);
}

KERNEL(sum_rows) {
    wait_for_others();
    const Tensor& x = t.in[0];
    EACH_BLOCK(row, x.ne[1] * x.ne[2] * x.ne[3]) {
        i64 rows[4] = {1, x.ne[1], x.ne[2], x.ne[3]};
        At a = coordinates(row, rows);
        float sum = 0.0f;
        for (i64 i = threadIdx.x; i < x.ne[0]; i += blockDim.x) sum += element(x, i, a.j, a.k, a.l);
        sum = block_sum(sum);
        if (threadIdx.x == 0) store(t.out, a, t.op == ROWS_MEAN ? sum / x.ne[0] : /* ROWS_SUM */ sum);
    }
}

KERNEL(cumsum) {
    wait_for_others();
    const Tensor& x = t.in[0];
    EACH(row, x.ne[1] * x.ne[2] * x.ne[3]) {
        i64 rows[4] = {1, x.ne[1], x.ne[2], x.ne[3]};
        At a = coordinates(row, rows);
        double sum = 0.0;
        for (a.i = 0; a.i < x.ne[0]; a.i++) {
            sum += element(x, a);
            store(t.out, a, (float)sum);
        }
    }
}

// Whether `a` comes before `b` in a sort: NaN is below every number.
bool less(float a, float b) { return a < b || (isnan(a) && !isnan(b)); }

KERNEL(argmax) {
    wait_for_others();
    const Tensor& x = t.in[0];
    __shared__ float values[256];
    __shared__ i64 places[256];
    EACH_BLOCK(row, x.ne[1] * x.ne[2] * x.ne[3]) {
        i64 rows[4] = {1, x.ne[1], x.ne[2], x.ne[3]};
        At a = coordinates(row, rows);
        float best = 0.0f;
        i64 place_of = -1;
        for (i64 i = threadIdx.x; i < x.ne[0]; i += blockDim.x) {
            float value = element(x, i, a.j, a.k, a.l);
            if (place_of < 0 || less(best, value)) { best = value; place_of = i; }
        }
        __syncthreads();
        values[threadIdx.x] = best;
        places[threadIdx.x] = place_of;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int n = 1; n < (int)blockDim.x; n++) {
                if (places[n] < 0) continue;
                bool equal = !less(values[n], best) && !less(best, values[n]);
                if (place_of < 0 || less(best, values[n]) || (equal && places[n] < place_of)) {
                    best = values[n];
                    place_of = places[n];
                }
            }
            // The result has one number a row, in the order of rows.
            *(int*)(t.out.at + row * 4) = place_of < 0 ? 0 : (int)place_of;
        }
    }
}

// Every element finds its place by counting those before it; the result keeps the first `out.ne[0]`.
KERNEL(argsort) {
    wait_for_others();
    const Tensor& x = t.in[0];
    EACH(n, elements(x.ne)) {
        At a = coordinates(n, x.ne);
        float own = element(x, a);
        i64 before = 0;
        for (i64 i = 0; i < x.ne[0]; i++) {
            float other = element(x, i, a.j, a.k, a.l);
            bool ahead = t.op == SORT_DESCENDING ? less(own, other) : /* SORT_ASCENDING */ less(other, own);
            bool behind = t.op == SORT_DESCENDING ? less(other, own) : less(own, other);
            before += ahead || (!behind && i < a.i);
        }
        if (before < t.out.ne[0]) {
            At b = {before, a.j, a.k, a.l};
            *(int*)place(t.out, b) = (int)a.i;
        }
    }
}

KERNEL(norm) {
    wait_for_others();
    const Tensor& x = t.in[0];
    EACH_BLOCK(row, x.ne[1] * x.ne[2] * x.ne[3]) {
        i64 rows[4] = {1, x.ne[1], x.ne[2], x.ne[3]};
        At a = coordinates(row, rows);
        float mean = 0.0f, squares = 0.0f;
        if (t.op == NORM_MEAN) {
            for (i64 i = threadIdx.x; i < x.ne[0]; i += blockDim.x) mean += element(x, i, a.j, a.k, a.l);
            mean = block_sum(mean) / x.ne[0];
        }
        for (i64 i = threadIdx.x; i < x.ne[0]; i += blockDim.x) {
            float d = element(x, i, a.j, a.k, a.l) - mean;
            squares += d * d;
        }
        squares = block_sum(squares);
        float factor = t.op == NORM_L2 ? 1.0f / fmaxf(sqrtf(squares), t.f[0])
                                       : /* NORM_RMS */ 1.0f / sqrtf(squares / x.ne[0] + t.f[0]);
        for (a.i = threadIdx.x; a.i < x.ne[0]; a.i += blockDim.x) store(t.out, a, (element(x, a) - mean) * factor);
    }
}

KERNEL(group_norm) {
    wait_for_others();
    const Tensor& x = t.in[0];
    i64 groups = t.p[0], channels = (x.ne[2] + groups - 1) / groups;
    EACH_BLOCK(n, groups * x.ne[3]) {
        i64 first = n % groups * channels, count = min(channels, x.ne[2] - first), image = n / groups;
        if (count <= 0) continue;
        i64 part[4] = {x.ne[0], x.ne[1], count, 1}, all = elements(part);
        float mean = 0.0f, squares = 0.0f;
        for (i64 i = threadIdx.x; i < all; i += blockDim.x) {
            At a = coordinates(i, part);
            mean += element(x, a.i, a.j, first + a.k, image);
        }
        mean = block_sum(mean) / all;
        for (i64 i = threadIdx.x; i < all; i += blockDim.x) {
            At a = coordinates(i, part);
            float d = element(x, a.i, a.j, first + a.k, image) - mean;
            squares += d * d;
        }
        float factor = 1.0f / sqrtf(block_sum(squares) / all + t.f[0]);
        for (i64 i = threadIdx.x; i < all; i += blockDim.x) {
            At a = coordinates(i, part), b = {a.i, a.j, first + a.k, image};
            store(t.out, b, (element(x, b) - mean) * factor);
        }
    }
}

float slope_of(float max_bias, i64 heads, i64 head) {
    if (max_bias <= 0.0f || heads == 0) return 1.0f;
    i64 power = 1;
    while (2 * power <= heads) power *= 2;
    float exponent = head < power ? max_bias / power * (head + 1) : max_bias / 2.0f / power * (2 * (head - power) + 1);
    return exp2f(-exponent);
}

// `p[0]` a mask is `in[1]`, `p[1]` sinks are the last operand; `f[0]` scale, `f[1]` ALiBi.
KERNEL(soft_max) {
    wait_for_others();
    const Tensor &x = t.in[0], &mask = t.in[1], &sinks = t.in[1 + t.p[0]];
    EACH_BLOCK(row, x.ne[1] * x.ne[2] * x.ne[3]) {
        i64 rows[4] = {1, x.ne[1], x.ne[2], x.ne[3]};
        At a = coordinates(row, rows);
        float slope = slope_of(t.f[1], x.ne[2], a.k);
        float sink = t.p[1] ? listed_element(sinks, a.k) : -INFINITE;
        float largest = -INFINITE;
        for (int pass = 0; pass < 3; pass++) {
            float total = 0.0f;
            static __shared__ float sum;
            for (i64 i = threadIdx.x; i < x.ne[0]; i += blockDim.x) {
                float score = element(x, i, a.j, a.k, a.l) * t.f[0];
                if (t.p[0]) score += slope * element(mask, i, a.j, a.k % mask.ne[2], a.l % mask.ne[3]);
                if (pass == 0) largest = score > largest || isnan(score) ? score : largest;
                if (pass == 1) total += expf(score - largest);
                At b = {i, a.j, a.k, a.l};
                if (pass == 2) store(t.out, b, largest == -INFINITE ? 0.0f : expf(score - largest) / sum);
            }
            if (pass == 0) largest = block_max(fmaxf(largest, sink));
            if (pass == 1) {
                total = block_sum(total);
                if (threadIdx.x == 0) sum = total + (t.p[1] ? expf(sink - largest) : 0.0f);
                __syncthreads();
            }
        }
        __syncthreads();
    }
}

KERNEL(diag_mask) {
    wait_for_others();
    EACH(n, elements(t.out.ne)) {
        At a = coordinates(n, t.out.ne);
        store(t.out, a, a.i > a.j + t.p[0] ? t.f[0] : element(t.in[0], a));
    }
}

// --- products ---

// 16 x 16 results a block. `in[0]` is shared by neighbouring planes of `in[1]`.
KERNEL(mul_mat) {
    wait_for_others();
    const Tensor &x = t.in[0], &z = t.in[1];
    __shared__ float left[16][17], right[16][17];
    int column = threadIdx.x % 16, line = threadIdx.x / 16;
    i64 m = (x.ne[1] + 15) / 16, n = (z.ne[1] + 15) / 16;
    EACH_BLOCK(tile, m * n * z.ne[2] * z.ne[3]) {
        i64 grid[4] = {m, n, z.ne[2], z.ne[3]};
        At a = coordinates(tile, grid);
        i64 k_of_x = a.k / (z.ne[2] / x.ne[2]), l_of_x = a.l / (z.ne[3] / x.ne[3]);
        i64 i = a.i * 16, j = a.j * 16;
        float sum = 0.0f;
        for (i64 k = 0; k < x.ne[0]; k += 16) {
            bool inside = k + column < x.ne[0];
            left[line][column] = inside && i + line < x.ne[1] ? element(x, k + column, i + line, k_of_x, l_of_x) : 0.0f;
            right[line][column] = inside && j + line < z.ne[1] ? element(z, k + column, j + line, a.k, a.l) : 0.0f;
            __syncthreads();
            for (int e = 0; e < 16; e++) sum += left[column][e] * right[line][e];
            __syncthreads();
        }
        At b = {i + column, j + line, a.k, a.l};
        if (b.i < t.out.ne[0] && b.j < t.out.ne[1]) store(t.out, b, sum);
    }
}

// A warp a result; `p[0]`: -1 chooses no matrix.
KERNEL(mul_mat_id) {
    wait_for_others();
    const Tensor &x = t.in[0], &z = t.in[1], &ids = t.in[2];
    if (elements(t.out.ne) == 0 || !indices_fit(ids, x.ne[2], t.p[0], t)) return;
    i64 warps = blockDim.x / 32, count = elements(t.out.ne);
    for (i64 n = blockIdx.x * warps + threadIdx.x / 32; n < count; n += gridDim.x * warps) {
        At a = coordinates(n, t.out.ne);
        i64 expert = integer(ids, a.j, a.k, 0, 0);
        float sum = 0.0f;
        for (i64 k = threadIdx.x % 32; k < x.ne[0] && expert >= 0; k += 32)
            sum += element(x, k, a.i, expert, 0) * element(z, k, a.j % z.ne[1], a.k, 0);
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) store(t.out, a, sum);
    }
}

KERNEL(out_prod) {
    wait_for_others();
    const Tensor &x = t.in[0], &z = t.in[1];
    EACH(n, elements(t.out.ne)) {
        At a = coordinates(n, t.out.ne);
        i64 k_of_x = a.k / (z.ne[2] / x.ne[2]), l_of_x = a.l / (z.ne[3] / x.ne[3]);
        float sum = 0.0f;
        for (i64 k = 0; k < x.ne[1]; k++) sum += element(x, a.i, k, k_of_x, l_of_x) * element(z, a.j, k, a.k, a.l);
        store(t.out, a, sum);
    }
}

// --- transformers ---

// `p[0]` dims, `p[1]` factors are `in[2]`, `p[2..6]` sections; `f`: base, scale, weight of the plain angle, ramp (two),
// magnitude.
KERNEL(rope) {
    wait_for_others();
    const Tensor &x = t.in[0], &positions = t.in[1];
    i64 pairs = t.p[0] / 2, rest = x.ne[0] - 2 * pairs, work[4] = {pairs + rest, x.ne[1], x.ne[2], x.ne[3]};
    EACH(n, elements(work)) {
        At a = coordinates(n, work), b = a;
        if (a.i >= pairs) {
            a.i += pairs;
            store(t.out, a, element(x, a));
            continue;
        }
        i64 pair = a.i, stream = 0;
        if (t.op == ROPE_SECTIONS) {
            i64 total = t.p[2] + t.p[3] + t.p[4] + t.p[5], at = pair % max(total, (i64)1);
            for (stream = 0; stream < 3 && at >= t.p[2 + stream]; stream++) at -= t.p[2 + stream];
        }
        float position = (float)listed_integer(positions, stream * x.ne[2] + a.k);
        float plain = position * powf(t.f[0], -2.0f * pair / t.p[0]);
        if (t.p[1]) plain /= listed_element(t.in[2], pair);
        float angle = t.f[1] * plain;
        if (t.f[2] != 0.0f) {
            float fallen = fminf(fmaxf((pair - t.f[3]) / fmaxf(t.f[4] - t.f[3], 0.001f), 0.0f), 1.0f);
            float mix = (1.0f - fallen) * t.f[2];
            angle = angle * (1.0f - mix) + plain * mix;
        }
        float sine = sinf(angle), cosine = cosf(angle);
        a.i = t.op == ROPE_NORMAL ? 2 * pair : /* ROPE_NEOX */ pair;
        b.i = t.op == ROPE_NORMAL ? 2 * pair + 1 : pair + pairs;
        float u = element(x, a), v = element(x, b);
        store(t.out, a, (u * cosine - v * sine) * t.f[5]);
        store(t.out, b, (u * sine + v * cosine) * t.f[5]);
    }
}

// A warp a query. `p[0]` kv_len, `p[1]` mask, `p[2]` sinks: their slots among the operands, or 0; `p[3]` the window. `p[4]` the slot of
// pages, before that of sequences, or 0; `p[5]` the rows of a page. `f`: scale, ALiBi, cap.
KERNEL(flash_attention) {
    wait_for_others();
    const Tensor &q = t.in[0], &k = t.in[1], &v = t.in[2];
    const i64 tokens = q.ne[1], heads = q.ne[2], seqs = q.ne[3], kv = k.ne[1], dk = q.ne[0], dv = v.ne[0];
    int lane = threadIdx.x % 32;
    i64 warps = blockDim.x / 32, work[4] = {heads, tokens, seqs, 1}, count = elements(work);
    for (i64 n = blockIdx.x * warps + threadIdx.x / 32; n < count; n += gridDim.x * warps) {
        At a = coordinates(n, work);
        i64 head = a.i, token = a.j, seq = a.k, kv_head = head * k.ne[2] / heads, kv_seq = seq * k.ne[3] / seqs;
        const Tensor& pages = t.in[t.p[4]];
        i64 limit = t.p[4] ? pages.ne[0] * t.p[5] : kv, visible = limit, sequence = 0;
        auto check = [&](i64 index, i64 rows) {
            bool good = index >= 0 && index < rows;
            if (!good && lane == 0) mark(t.marks, t.step, index, rows);
            return good;
        };
        if (t.p[0]) {
            visible = listed_integer(t.in[t.p[0]], token);
            if (visible < 0 || visible > limit) {
                if (lane == 0) mark(t.marks, t.step, visible, limit);
                visible = 0;
            }
        }
        if (t.p[4] && visible) {
            sequence = listed_integer(t.in[t.p[4] + 1], token);
            if (!check(sequence, pages.ne[1])) visible = 0;
        }
        const Tensor& mask = t.in[t.p[1]];
        float slope = slope_of(t.f[1], heads, head);
        float query[16], sums[16];
        for (int e = 0; e < 16; e++) {
            i64 i = lane + 32 * e;
            query[e] = i < dk ? element(q, i, token, head, seq) : 0.0f;
            sums[e] = 0.0f;
        }
        float largest = -INFINITE, total = 0.0f;
        for (i64 r = t.p[3] ? max(visible - t.p[3], 0ll) : 0; r < visible; r++) {
            i64 row = r;
            if (t.p[4]) {
                i64 page = *(const int*)(pages.at + r / t.p[5] * pages.nb[0] + sequence * pages.nb[1]);
                if (!check(page, kv / t.p[5])) break;
                row = page * t.p[5] + r % t.p[5];
            }
            float bias = t.p[1] ? slope * element(mask, row, token, head % mask.ne[2], seq % mask.ne[3]) : 0.0f;
            if (bias == -INFINITE) continue;
            float score = 0.0f;
            for (int e = 0; e < 16; e++) {
                i64 i = lane + 32 * e;
                if (i < dk) score += query[e] * element(k, i, row, kv_head, kv_seq);
            }
            score = warp_sum(score) * t.f[0];
            if (t.f[2] != 0.0f) score = t.f[2] * tanhf(score / t.f[2]);
            score += bias;
            if (score == -INFINITE) continue;
            float next = fmaxf(largest, score), shrink = expf(largest - next), weight = expf(score - next);
            largest = next;
            total = total * shrink + weight;
            for (int e = 0; e < 16; e++) {
                i64 i = lane + 32 * e;
                if (i < dv) sums[e] = sums[e] * shrink + weight * element(v, i, row, kv_head, kv_seq);
            }
        }
        float shrink = 1.0f;
        if (t.p[2]) {
            float sink = listed_element(t.in[t.p[2]], head), next = fmaxf(largest, sink);
            shrink = expf(largest - next);
            total = total * shrink + expf(sink - next);
        }
        for (int e = 0; e < 16; e++) {
            At b = {lane + 32 * e, head, token, seq};
            if (b.i < dv) store(t.out, b, total > 0.0f ? sums[e] * shrink / total : 0.0f);
        }
    }
}

// --- convolution and images: a thread a result. `p`: stride, padding, dilation (two each) ---

i64 tap(const Task& t, int d, i64 position, i64 element_of, i64 extent) {
    i64 at = position * t.p[d] + element_of * t.p[4 + d] - t.p[2 + d];
    return at < extent ? at : -1;
}

KERNEL(im2col) {
    wait_for_others();
    const Tensor &w = t.in[0], &x = t.in[1];
    EACH(n, elements(t.out.ne)) {
        At a = coordinates(n, t.out.ne);
        i64 kx = a.i % w.ne[0], ky = a.i / w.ne[0] % w.ne[1], channel = a.i / w.ne[0] / w.ne[1];
        float value = 0.0f;
        i64 i = tap(t, 0, a.j, kx, x.ne[0]);
        if (t.op == IM2COL_2D) {
            i64 j = tap(t, 1, a.k, ky, x.ne[1]);
            if (i >= 0 && j >= 0) value = element(x, i, j, channel, a.l);
        } else /* IM2COL_1D */ if (i >= 0) {
            value = element(x, i, a.i / w.ne[0], a.k, 0);
        }
        store(t.out, a, value);
    }
}

KERNEL(conv) {
    wait_for_others();
    const Tensor &w = t.in[0], &x = t.in[1];
    EACH(n, elements(t.out.ne)) {
        At a = coordinates(n, t.out.ne);
        float sum = 0.0f;
        i64 inputs = t.op == CONV_1D ? w.ne[1] : t.op == CONV_2D ? w.ne[2] : 1, height = t.op == CONV_1D ? 1 : w.ne[1];
        for (i64 input = 0; input < inputs; input++)
            for (i64 ky = 0; ky < height; ky++)
                for (i64 kx = 0; kx < w.ne[0]; kx++) {
                    i64 i = tap(t, 0, a.i, kx, x.ne[0]);
                    if (t.op == CONV_1D) {
                        if (i >= 0) sum += element(w, kx, input, a.j, 0) * element(x, i, input, a.k, 0);
                        continue;
                    }
                    i64 j = tap(t, 1, a.j, ky, x.ne[1]);
                    if (i < 0 || j < 0) continue;
                    sum += t.op == CONV_2D ? element(w, kx, ky, input, a.k) * element(x, i, j, input, a.l)
                                     : /* CONV_DEPTHWISE_2D */ element(w, kx, ky, 0, a.k) * element(x, i, j, a.k, a.l);
                }
        store(t.out, a, sum);
    }
}

// `p[0]` the stride.
KERNEL(conv_transpose) {
    wait_for_others();
    const Tensor &w = t.in[0], &x = t.in[1];
    i64 stride = t.p[0];
    EACH(n, elements(t.out.ne)) {
        At a = coordinates(n, t.out.ne);
        float sum = 0.0f;
        if (t.op == CONV_TRANSPOSE_1D) {
            for (i64 kx = 0; kx < w.ne[0]; kx++) {
                i64 at = a.i - kx;
                if (at < 0 || at % stride || at / stride >= x.ne[0]) continue;
                for (i64 input = 0; input < w.ne[2]; input++)
                    sum += element(w, kx, a.j, input, 0) * element(x, at / stride, input, 0, 0);
            }
        } else /* CONV_TRANSPOSE_2D */ {
            for (i64 ky = 0; ky < w.ne[1]; ky++)
                for (i64 kx = 0; kx < w.ne[0]; kx++) {
                    i64 i = a.i - kx, j = a.j - ky;
                    if (i < 0 || j < 0 || i % stride || j % stride || i / stride >= x.ne[0] || j / stride >= x.ne[1]) continue;
                    for (i64 input = 0; input < w.ne[3]; input++)
                        sum += element(w, kx, ky, a.k, input) * element(x, i / stride, j / stride, input, a.l);
                }
        }
        store(t.out, a, sum);
    }
}

// `p`: kernel, stride, padding (two each), `p[6]` dimensions.
KERNEL(pool) {
    wait_for_others();
    const Tensor& x = t.in[0];
    EACH(n, elements(t.out.ne)) {
        At a = coordinates(n, t.out.ne);
        float best = -INFINITE, sum = 0.0f;
        i64 height = t.p[6] == 2 ? t.p[1] : 1;
        for (i64 ky = 0; ky < height; ky++) {
            i64 j = t.p[6] == 2 ? a.j * t.p[3] + ky - t.p[5] : a.j;
            if (j < 0 || j >= x.ne[1]) continue;
            for (i64 kx = 0; kx < t.p[0]; kx++) {
                i64 i = a.i * t.p[2] + kx - t.p[4];
                if (i < 0 || i >= x.ne[0]) continue;
                float value = element(x, i, j, a.k, a.l);
                best = value > best || isnan(value) ? value : best;
                sum += value;
            }
        }
        store(t.out, a, t.op == POOL_MEAN ? sum / (float)(t.p[0] * height) : /* POOL_MAX */ best);
    }
}

void between(i64 at, i64 source, i64 target, i64* first, i64* second, float* part) {
    double position = (at + 0.5) * source / target - 0.5;
    i64 last = source - 1;
    if (position <= 0.0) { *first = *second = 0; *part = 0.0f; return; }
    *first = min((i64)floor(position), last);
    *second = min(*first + 1, last);
    *part = (float)fmin(position - *first, 1.0);
}

KERNEL(upscale) {
    wait_for_others();
    const Tensor &x = t.in[0], &y = t.out;
    EACH(n, elements(y.ne)) {
        At a = coordinates(n, y.ne);
        i64 k = a.k * x.ne[2] / y.ne[2], l = a.l * x.ne[3] / y.ne[3];
        if (t.op == UPSCALE_NEAREST) {
            store(y, a, element(x, a.i * x.ne[0] / y.ne[0], a.j * x.ne[1] / y.ne[1], k, l));
            continue;
        }
        /* UPSCALE_BILINEAR */
        i64 x0, x1, y0, y1;
        float right, below;
        between(a.i, x.ne[0], y.ne[0], &x0, &x1, &right);
        between(a.j, x.ne[1], y.ne[1], &y0, &y1, &below);
        float top = element(x, x0, y0, k, l) * (1.0f - right) + element(x, x1, y0, k, l) * right;
        float bottom = element(x, x0, y1, k, l) * (1.0f - right) + element(x, x1, y1, k, l) * right;
        store(y, a, top * (1.0f - below) + bottom * below);
    }
}

KERNEL(timestep_embedding) {
    wait_for_others();
    i64 half = t.p[0] / 2;
    EACH(n, elements(t.out.ne)) {
        At a = coordinates(n, t.out.ne);
        float value = 0.0f;
        if (a.i < 2 * half) {
            double frequency = exp(-log((double)t.p[1]) * (a.i % half) / half);
            double angle = listed_element(t.in[0], a.j) * frequency;
            value = (float)(a.i < half ? cos(angle) : sin(angle));
        }
        store(t.out, a, value);
    }
}

// --- state-space models ---

KERNEL(ssm_conv) {
    wait_for_others();
    const Tensor &x = t.in[0], &w = t.in[1];
    EACH(n, elements(t.out.ne)) {
        At a = coordinates(n, t.out.ne);
        float sum = 0.0f;
        for (i64 e = 0; e < w.ne[0]; e++) sum += element(x, a.j + e, a.i, a.k, 0) * element(w, e, a.i, 0, 0);
        store(t.out, a, sum);
    }
}

// A thread a channel; the new state is kept in the result.
KERNEL(ssm_scan) {
    wait_for_others();
    const Tensor &states = t.in[0], &x = t.in[1], &dt = t.in[2], &decays = t.in[3], &b = t.in[4], &c = t.in[5], &ids = t.in[6];
    i64 size = states.ne[0], inner = x.ne[0], heads = x.ne[1], tokens = x.ne[2], seqs = x.ne[3];
    if (!indices_fit(ids, states.ne[3], false, t)) return;
    float* outputs = (float*)t.out.at;
    float* kept = outputs + inner * heads * tokens * seqs;
    i64 work[4] = {inner, heads, seqs, 1};
    EACH(n, elements(work)) {
        At a = coordinates(n, work);
        i64 channel = a.i, head = a.j, seq = a.k, from = listed_integer(ids, seq);
        i64 group = head * b.ne[1] / heads;
        float* state = kept + n * size;
        for (i64 e = 0; e < size; e++) state[e] = element(states, e, channel, head, from);
        for (i64 token = 0; token < tokens; token++) {
            float raw = element(dt, head, token, seq, 0);
            float step = fmaxf(raw, 0.0f) + log1pf(expf(-fabsf(raw)));
            float input = element(x, channel, head, token, seq) * step, sum = 0.0f;
            for (i64 e = 0; e < size; e++) {
                float decay = element(decays, decays.ne[0] == 1 ? 0 : e, head, 0, 0);
                float next = state[e] * expf(step * decay) + element(b, e, group, token, seq) * input;
                state[e] = next;
                sum += next * element(c, e, group, token, seq);
            }
            outputs[((seq * tokens + token) * heads + head) * inner + channel] = sum;
        }
    }
}

// A thread a value; the new state is kept in the result, where columns of neighbouring threads lie side by side.
KERNEL(delta_scan) {
    wait_for_others();
    const Tensor &states = t.in[0], &r = t.in[1], &w = t.in[2], &k = t.in[3], &v = t.in[4], &a = t.in[5], &b = t.in[6], &ids = t.in[7];
    i64 values = states.ne[0], keys = states.ne[1], heads = v.ne[1], tokens = v.ne[2], seqs = v.ne[3];
    if (!indices_fit(ids, states.ne[3], false, t)) return;
    float* outputs = (float*)t.out.at;
    float* kept = outputs + values * heads * tokens * seqs;
    i64 work[4] = {values, heads, seqs, 1};
    EACH(n, elements(work)) {
        At at = coordinates(n, work);
        i64 value = at.i, head = at.j, seq = at.k, from = listed_integer(ids, seq);
        float* state = kept + (seq * heads + head) * keys * values + value;
        for (i64 e = 0; e < keys; e++) state[e * values] = element(states, value, e, head, from);
        for (i64 token = 0; token < tokens; token++) {
            float input = element(v, value, head, token, seq), known = 0.0f, sum = 0.0f;
            for (i64 e = 0; e < keys; e++) known += state[e * values] * element(a, e, head, token, seq);
            for (i64 e = 0; e < keys; e++) {
                float decay = element(w, w.ne[0] == 1 ? 0 : e, head, token, seq);
                float next = state[e * values] * decay - known * element(b, e, head, token, seq) + input * element(k, e, head, token, seq);
                state[e * values] = next;
                sum += next * element(r, e, head, token, seq);
            }
            outputs[((seq * tokens + token) * heads + head) * values + value] = sum;
        }
    }
}
