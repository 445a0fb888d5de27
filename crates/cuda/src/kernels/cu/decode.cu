// The kernels of attention of single tokens, over `attend` of their type.

// Calls `attend_to(token)` for the tokens of a block of the grid.
template <typename Each> void each_token(const Decode& t, Each attend_to) {
#if MANY
    int first = blockIdx.z / t.beside * 64, count = min(64, t.tokens - first);
    u64 starts = run_starts(t.pages, first, count), left = 0;
    for (int half = 0; half < 2; half++) {
        int i = half * 32 + threadIdx.x % 32;
        bool few = i < count && run_end(starts, i, count) - run_begin(starts, i) < t.pages.few;
        left |= (u64)__ballot_sync(~0u, few) << (32 * half);
    }
    // Every `beside`th of them.
    for (int skipped = blockIdx.z % t.beside; skipped; skipped--) left &= left - 1;
    while (left) {
        attend_to(first + __ffsll(left) - 1);
        for (int skipped = 0; skipped < t.beside; skipped++) left &= left - 1;
    }
#else
    attend_to(0);
#endif
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) decode(const __grid_constant__ Decode t) {
    let_others_begin();
#if !ROTATED && !EARLY
    wait_for_others();
#endif
    each_token(t, [&](int token) { attend(t, token); });
}

// A block a head: its splits come together, where several blocks had them.
extern "C" __global__ void __launch_bounds__((HEAD + 31) / 32 * 32) combine(const __grid_constant__ Decode t) {
    let_others_begin();
    wait_for_others();
    each_token(t, [&](int token) {
        int splits = range_of(t, token).splits, i = threadIdx.x;
        if (splits > 1 && i < HEAD) combine_splits(t, token, blockIdx.x, i, splits);
    });
}
