// Weights in planes. 32 elements at a time: eight registers of four codes each, element 4 i + j in byte j of register i,
// and for each half of 16 a factor and a number to be added: element = code * factor + added.
struct Group {
    int code[8];
    float factor[2];
    float added[2];
};

// Where a tensor's planes are.
struct Planes {
    u64 at[4];
};

Planes planes_of(u64 at, const u64* start) {
    Planes p;
    for (int i = 0; i < 4; i++) p.at[i] = at + start[i];
    return p;
}

void spread_nibbles(uint4 x, int* code) {
    u32 words[4] = {x.x, x.y, x.z, x.w};
    for (int i = 0; i < 4; i++) {
        code[i] = words[i] & 0x0f0f0f0f;
        code[i + 4] = (words[i] >> 4) & 0x0f0f0f0f;
    }
}

// Four codes of 4 bits through a table of sixteen signed bytes.
int look_up(u32 codes, const u32* table) {
    u32 selector = codes & 0x07070707;
    selector = (selector & 7) | (selector >> 4 & 0x70) | (selector >> 8 & 0x700) | (selector >> 12 & 0x7000);
    u32 low = __byte_perm(table[0], table[1], selector), high = __byte_perm(table[2], table[3], selector);
    u32 upper = ((codes >> 3) & 0x01010101) * 0xff;
    return (low & ~upper) | (high & upper);
}

// What a group's codes lie in, as it comes from memory: loads only, so that several groups can be on their way.
template <int TYPE> struct Raw {
    uint4 a, b;
    u32 scale, extra;
};

template <int TYPE, class Index> void load_group(Raw<TYPE>& r, const Planes& p, Index g) {
    Index block = g / (ELEMENTS_OF(TYPE) == 32 ? 1 : 8);
    if (TYPE == Q8_0) {
        r.a = __ldcs((const uint4*)p.at[0] + 2 * g);
        r.b = __ldcs((const uint4*)p.at[0] + 2 * g + 1);
        r.scale = __ldcs((const u16*)p.at[1] + g);
    } else if (TYPE == Q2_K || TYPE == Q3_K) {
        uint2 pairs = __ldcs((const uint2*)p.at[0] + g);
        r.a = make_uint4(pairs.x, pairs.y, 0, 0);
        if (TYPE == Q2_K) {
            r.extra = __ldcs((const u16*)p.at[1] + g);
            r.scale = __ldcs((const u32*)p.at[2] + block);
        } else {
            r.extra = __ldcs((const u32*)p.at[1] + g);
            const u8* scales = (const u8*)p.at[2] + Q3_K_GROUP_SCALES_BYTES * block;
            int group = 2 * (g & 7);
            r.a.z = (u32)(q3_k_scale(scales, group) & 0xffff) | (u32)q3_k_scale(scales, group + 1) << 16;
            r.scale = __ldcs((const u16*)p.at[3] + block);
        }
    } else {
        r.a = __ldcs((const uint4*)p.at[0] + g);
        if (TYPE == Q4_0 || TYPE == IQ4_NL) r.scale = __ldcs((const u16*)p.at[1] + g);
        if (TYPE == Q4_1) r.scale = __ldcs((const u32*)p.at[1] + g);
        if (TYPE == MXFP4) r.scale = __ldcs((const u8*)p.at[1] + g);
        if (TYPE == Q5_0 || TYPE == Q5_1 || TYPE == Q5_K) r.extra = __ldcs((const u32*)p.at[1] + g);
        if (TYPE == Q5_0) r.scale = __ldcs((const u16*)p.at[2] + g);
        if (TYPE == Q5_1) r.scale = __ldcs((const u32*)p.at[2] + g);
        if (TYPE == Q4_K) r.b = __ldg((const uint4*)p.at[1] + block);
        if (TYPE == Q5_K) r.b = __ldg((const uint4*)p.at[2] + block);
        if (TYPE == Q4_K || TYPE == Q5_K) r.scale = g & 7;
        if (TYPE == Q6_K) {
            uint2 pairs = __ldcs((const uint2*)p.at[1] + g);
            r.b = make_uint4(pairs.x, pairs.y, __ldg((const u16*)p.at[3] + block), 0);
            r.scale = __ldcs((const u16*)p.at[2] + g);
        }
        if (TYPE == IQ4_XS) {
            uint2 meta = __ldg((const uint2*)p.at[1] + block);
            int group = g & 7;
            int scale = ((meta.y >> (4 * group)) & 15) | ((meta.x >> (16 + 2 * group)) & 3) << 4;
            r.scale = meta.x & 0xffff;
            r.extra = scale - IQ4_XS_GROUP_SCALE_BIAS;
        }
    }
}

template <int TYPE> void open_group(const Raw<TYPE>& r, Group& g) {
    g.added[0] = g.added[1] = 0.0f;
    if (TYPE == Q8_0) {
        u32 words[8] = {r.a.x, r.a.y, r.a.z, r.a.w, r.b.x, r.b.y, r.b.z, r.b.w};
        for (int i = 0; i < 8; i++) g.code[i] = words[i];
        g.factor[0] = g.factor[1] = half_to_float(r.scale);
        return;
    }
    if (TYPE == Q2_K || TYPE == Q3_K) {
        u32 words[2] = {r.a.x, r.a.y};
        for (int i = 0; i < 8; i++) {
            g.code[i] = (words[i / 4] >> (2 * (i % 4))) & 0x03030303;
            if (TYPE == Q3_K) g.code[i] |= ((r.extra >> i) & 0x01010101) << 2;
        }
        float d = half_to_float(r.scale & 0xffff);
        for (int half = 0; half < 2; half++) {
            if (TYPE == Q2_K) {
                u32 byte = (r.extra >> (8 * half)) & 255;
                g.factor[half] = d * (byte & 15);
                g.added[half] = -half_to_float(r.scale >> 16) * (byte >> 4);
            } else {
                g.factor[half] = d * (short)(r.a.z >> (16 * half));
                g.added[half] = -(float)Q3_K_BIAS * g.factor[half];
            }
        }
        return;
    }
    spread_nibbles(r.a, g.code);
    if (TYPE == Q5_0 || TYPE == Q5_1 || TYPE == Q5_K)
        for (int i = 0; i < 8; i++) g.code[i] |= ((r.extra >> i) & 0x01010101) << 4;
    if (TYPE == Q6_K) {
        u32 words[2] = {r.b.x, r.b.y};
        for (int i = 0; i < 8; i++) g.code[i] |= ((words[i / 4] >> (2 * (i % 4))) & 0x03030303) << 4;
        float d = half_to_float(r.b.z);
        for (int half = 0; half < 2; half++) {
            g.factor[half] = d * (i8)(r.scale >> (8 * half));
            g.added[half] = -(float)Q6_K_BIAS * g.factor[half];
        }
        return;
    }
    if (TYPE == Q4_K || TYPE == Q5_K) {
        int group = r.scale, j = group & 3, scale, min;
        u32 first = r.b.y, second = r.b.z, third = r.b.w;
        u32 low = first >> (8 * j) & 255, mid = second >> (8 * j) & 255, top = third >> (8 * j) & 255;
        scale = group < 4 ? low & 63 : (top & 15) | (low >> 6) << 4;
        min = group < 4 ? mid & 63 : (top >> 4) | (mid >> 6) << 4;
        g.factor[0] = g.factor[1] = half_to_float(r.b.x & 0xffff) * scale;
        g.added[0] = g.added[1] = -half_to_float(r.b.x >> 16) * min;
        return;
    }
    if (TYPE == IQ4_NL || TYPE == IQ4_XS || TYPE == MXFP4) {
        const u32 iq4[4] = IQ4_NL_WORDS;
        const u32 mx[4] = MXFP4_WORDS;
        for (int i = 0; i < 8; i++) g.code[i] = look_up(g.code[i], TYPE == MXFP4 ? mx : iq4);
        float d = TYPE == MXFP4 ? mxfp4_scale(r.scale) : half_to_float(r.scale);
        g.factor[0] = g.factor[1] = TYPE == IQ4_XS ? d * (int)r.extra : d;
        return;
    }
    float d = half_to_float(r.scale & 0xffff);
    g.factor[0] = g.factor[1] = d;
    if (TYPE == Q4_0) g.added[0] = g.added[1] = -(float)Q4_0_BIAS * d;
    if (TYPE == Q5_0) g.added[0] = g.added[1] = -(float)Q5_0_BIAS * d;
    if (TYPE == Q4_1 || TYPE == Q5_1) g.added[0] = g.added[1] = half_to_float(r.scale >> 16);
}

// One element of a group, for kernels that need no speed.
template <int TYPE> float group_element_of(const Planes& p, i64 g, int e) {
    Raw<TYPE> raw;
    Group group;
    load_group<TYPE>(raw, p, g);
    open_group<TYPE>(raw, group);
    int code = 0;
    for (int i = 0; i < 8; i++)
        if (i == e / 4) code = group.code[i];
    bool is_signed = TYPE == Q8_0 || TYPE == IQ4_NL || TYPE == IQ4_XS || TYPE == MXFP4;
    int byte = (code >> (8 * (e % 4))) & 255;
    float factor = e < 16 ? group.factor[0] : group.factor[1], added = e < 16 ? group.added[0] : group.added[1];
    return (is_signed ? (i8)byte : byte) * factor + added;
}

__noinline__ float plane_element(int dtype, const Planes& p, i64 g, int e) {
    switch (dtype) {
        case Q4_0: return group_element_of<Q4_0>(p, g, e);
        case Q4_1: return group_element_of<Q4_1>(p, g, e);
        case Q5_0: return group_element_of<Q5_0>(p, g, e);
        case Q5_1: return group_element_of<Q5_1>(p, g, e);
        case Q8_0: return group_element_of<Q8_0>(p, g, e);
        case Q2_K: return group_element_of<Q2_K>(p, g, e);
        case Q3_K: return group_element_of<Q3_K>(p, g, e);
        case Q4_K: return group_element_of<Q4_K>(p, g, e);
        case Q5_K: return group_element_of<Q5_K>(p, g, e);
        case Q6_K: return group_element_of<Q6_K>(p, g, e);
        case IQ4_NL: return group_element_of<IQ4_NL>(p, g, e);
        case IQ4_XS: return group_element_of<IQ4_XS>(p, g, e);
        case MXFP4: return group_element_of<MXFP4>(p, g, e);
    }
    return 0.0f;
}

// Any element of any tensor.
__noinline__ float element(const Tensor& t, i64 i, i64 j, i64 k, i64 l) {
    if (t.planes) {
        i64 row = (l * t.ne[2] + k) * t.ne[1] + j;
        Planes p = planes_of(t.at, t.start);
        return plane_element(t.dtype, p, row * (t.ne[0] / 32) + i / 32, i % 32);
    }
    u64 row = t.at + j * t.nb[1] + k * t.nb[2] + l * t.nb[3];
    int block = block_elements(t.dtype);
    if (block == 1) return load_plain(t.dtype, row + i * t.nb[0]);
    return block_element(t.dtype, (const u8*)(row + i / block * t.nb[0]), i % block);
}

u32 fused_f16x2(u32 x, u32 factor, u32 added) {
    u32 y;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(x), "r"(factor), "r"(added));
    return y;
}
u32 minus_f16x2(u32 x, u32 z) {
    u32 y;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(x), "r"(z));
    return y;
}

// Four codes in bytes as four F16, exactly: 1024 + code is an F16 whose lower bits are the code. Signed ones are moved
// by 128 first.
template <bool HAVE_SIGNS> void codes_to_f16x2(u32 codes, u32* low, u32* high) {
    u32 moved = HAVE_SIGNS ? codes ^ 0x80808080 : codes;
    const u32 offset = HAVE_SIGNS ? 0x64806480 : 0x64006400;  // 1152, 1024
    *low = minus_f16x2(__byte_perm(moved, 0x64646464, 0x4140), offset);
    *high = minus_f16x2(__byte_perm(moved, 0x64646464, 0x4342), offset);
}
