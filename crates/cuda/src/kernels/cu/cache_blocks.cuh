// Rows of a cache of HEAD elements in blocks of KVTYPE (Q8_0, Q4_0), as they were copied to shared memory.

#define IN_BLOCKS (KVTYPE == Q8_0 || KVTYPE == Q4_0)

#if IN_BLOCKS
#if KVTYPE == Q8_0
#define BLOCK_BYTES Q8_0_BYTES
#define SCALE_AT Q8_0_SCALE_AT
#define CODES_AT Q8_0_CODES_AT
#else
#define BLOCK_BYTES Q4_0_BYTES
#define SCALE_AT Q4_0_SCALE_AT
#define CODES_AT Q4_0_CODES_AT
#endif
#define ROW_BYTES (HEAD / 32 * BLOCK_BYTES)
static_assert(HEAD % 32 == 0, "rows are whole blocks");

extern __shared__ uint4 memory[];

// Words from a byte of shared memory on, which is even. A word behind them may be read, too.
template <int COUNT> void words_at(u32 at, u32* words) {
    const u32* from = (const u32*)memory + at / 4;
    u32 low = from[0], shift = at % 4 * 8;
    for (int i = 0; i < COUNT; i++) {
        u32 high = from[i + 1];
        words[i] = __funnelshift_r(low, high, shift);
        low = high;
    }
}

u16 scale_at(u32 block) { return ((const u16*)memory)[(block + SCALE_AT) / 2]; }

// Up to 16 bytes of a cache on their way to 16 of shared memory; the others there become 0.
void copy_piece(u32 to, u64 from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
#endif
