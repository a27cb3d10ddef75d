/* refusals.h - what is refused: errors.c makes each of these calls and compares the status and the whole text of the
   error. A row is a call that would be accepted, and what is changed in it:

       FORWARD(status, "field rule: wanted, is given", the call, change of d)
       BACKWARD(status, text, the call, change of d and g)
       MHA(status, text, change of h or options)               attn_mha
       MHA_BACKWARD(status, text, change of h, hg or options)  attn_mha_backward
       PIECE(status, text, expression)                         any other function

   *_EACH(numbers, ...) stands for a row for each of the numbers (errors.c lists them): n in the change, % in the text.
   A text that ends in * says no more than what stands before it. Each part is in the order of the fields' names. */

/* Rules that are long */
#define BROADCAST "must be 1 or that of [B,H,Sq,Sk], axes counted from the right: [Sq,Sk], [H,Sq,Sk], [B,1,1,Sk], ..."
#define CHOOSE \
    "must be set where Sq != Sk: ATTN_ALIGN_BOTTOM_RIGHT (the last query sits at the last key, as in decode), " \
    "ATTN_ALIGN_TOP_LEFT (query i at key i) or ATTN_ALIGN_POSITIONS"
#define KEYS_IN_PARTS \
    "must be ATTN_ALIGN_TOP_LEFT or ATTN_ALIGN_POSITIONS where keys come in parts: a part does not know where all " \
    "keys end"
#define FLOATS "ATTN_F32, ATTN_F16 or ATTN_BF16"
#define OVERLAPS_ITSELF "must not make the output overlap itself"
#define MATRIX "must be that of a matrix: 2, or 3 or 4 with batch axes before it"
#define BMM_CODES xt.type = ATTN_I8, options.k_scale = floats(2, SQ, 1, 0, 0) /* x times these is square_out */
#define TOO_MANY "must have fewer than 2^60 elements"
#define OF_HEADS(axes) "must be that of [B,H," axes "]; without heads H = 1"
#define OF_KV_HEADS(axes) "must be that of [B,Hkv," axes "]; without heads Hkv = 1"

// clang-format off
/* ---- attn_forward */
FORWARD(NULL, "alibi.data must not be NULL", valid, d.alibi = attn_view_f32(0, 1, H, 0, 0, 0))
FORWARD(RANK, "alibi.rank must be that of [H]: 1, is 2", valid, d.alibi = floats(2, H, 1, 0, 0))
FORWARD(SIZE, "alibi.size[0] must equal q.size[1]: 4, is 2", valid, d.alibi = floats(1, HKV, 0, 0, 0))
FORWARD(OPTION, "align must be ATTN_ALIGN_POSITIONS where positions are given", valid, d.positions = ints(1, B, 0))
FORWARD(OPTION, "align must be ATTN_ALIGN_POSITIONS where positions are given",
    valid, d.positions = ints(1, B, 0); d.align = ATTN_ALIGN_BOTTOM_RIGHT)
FORWARD(OPTION, "align " CHOOSE, valid, d.causal = 1)
FORWARD(OPTION, "align " CHOOSE, valid, d.alibi = slopes())
FORWARD(OPTION, "align " CHOOSE, valid, d.window = 1; d.window_left = ATTN_UNBOUNDED)
FORWARD(OPTION, "align " CHOOSE, valid, d.window = 1; d.window_right = ATTN_UNBOUNDED)
FORWARD(OPTION, "align " CHOOSE, valid, d.causal = 1; d.key_lengths = ints(1, B, 0); m.ints[0] = m.ints[1] = SQ)
FORWARD(OPTION, "align " CHOOSE, given, d.causal = 1)
FORWARD(OPTION, "align " CHOOSE,
    valid, d.causal = 1; d.q.size[2] = 0; no_results(&d);
        d.out = attn_out_bhsd(m.out, B, H, 0, DV)) /* a call without a row, too */
FORWARD(OPTION, "align must be set where an entry has not as many queries as keys: see ATTN_ALIGN_UNSET",
    padded, d.align = 0; d.causal = 1) /* entries of 3 queries and 4 keys */
FORWARD(OPTION, "align must be set where an entry has not as many queries as keys: see ATTN_ALIGN_UNSET",
    packed, d.align = 0; d.causal = 1)
FORWARD(OPTION, "align " KEYS_IN_PARTS, last_part, d.causal = 1; d.align = ATTN_ALIGN_BOTTOM_RIGHT)
FORWARD(OPTION, "align " KEYS_IN_PARTS, middle_part, d.window = 1; d.key_origin = 0)
FORWARD(OPTION, "align " KEYS_IN_PARTS,
    valid, d.alibi = floats(1, H, 0, 0, 0); d.align = ATTN_ALIGN_BOTTOM_RIGHT; d.key_origin = ATTN_PART_KEYS)
FORWARD(OPTION, "align must be one of attn_align", valid, d.align = ATTN_ALIGN_COUNT)
FORWARD_EACH(unknown, OPTION, "align must be one of attn_align", valid, d.align = n)
FORWARD(NULL, "allocator must have both functions or none", valid, d.allocator.allocate = allocate_nothing)
FORWARD(NULL, "allocator must have both functions or none", valid, d.allocator.release = no_release)
FORWARD(NULL, "bias must be given where bias_index is: the table", indexed, CLEAR(d.bias))
FORWARD(RANGE, "bias must have a column for each key of the longest entry: 5, is 4 at [0]",
    packed, d.bias = floats(4, B, 1, 1, SK - 1))
FORWARD_EACH(one_to_three, OVERFLOW, "bias " TOO_MANY,
    valid, d.bias = cut_out(attn_view_f32(m.scores, 3, 4, FAR, FAR, 0), n))
FORWARD_EACH(one_to_three, OVERFLOW, "bias " TOO_MANY,
    valid, d.bias = cut_out(attn_view_f32(m.scores, 4, 4, FAR, FAR, SK), n))
FORWARD_EACH(one_to_three, OVERFLOW, "bias " TOO_MANY,
    valid, d.bias = cut_out(attn_view_bhsd(m.scores, 4, 1, FAR, FAR), n))
FORWARD_EACH(one_to_three, OVERFLOW, "bias " TOO_MANY,
    valid, d.bias = cut_out(attn_view_bshd(m.scores, 4, FAR, FAR, 1), n))
FORWARD_EACH(one_to_three, OVERFLOW, "bias " TOO_MANY,
    valid, d.bias = cut_out(attn_view_rows(m.scores, 4, FAR, 1, 1, FAR), n))
FORWARD_EACH(one_and_two, OVERFLOW, "bias " TOO_MANY, valid, d.bias = attn_view_qkv(m.q, n, 1, 1, FAR, FAR))
FORWARD_EACH(one_and_two, OVERFLOW, "bias " TOO_MANY, valid, d.bias = cut_out(attn_view_qkv(m.q, n, 1, 1, FAR, FAR), 0))
FORWARD_EACH(one_and_two, OVERFLOW, "bias " TOO_MANY,
    valid, d.bias = cut_out(attn_view_qkv(m.q, n, 2, FAR >> 9, FAR >> 25, FAR >> 24), 1))
FORWARD(NULL, "bias.data must not be NULL", valid, d.bias = attn_view_f32(0, 1, SK, 0, 0, 0))
FORWARD(RANK, "bias.rank must be that of [Sk], [Sq,Sk], [H,Sq,Sk] or [B,H,Sq,Sk]: 1, is -1",
    valid, d.bias = attn_view_slice(floats(2, SQ, SK, 0, 0), 2, 0, 1))
FORWARD(RANK, "bias.rank must be that of [Sk], [Sq,Sk], [H,Sq,Sk] or [B,H,Sq,Sk]: 1, is -1",
    valid, d.bias = attn_view_swap(floats(2, SQ, SK, 0, 0), 1, 2))
FORWARD_EACH(negative_32, RANK, "bias.rank must be that of [Sk], [Sq,Sk], [H,Sq,Sk] or [B,H,Sq,Sk]: 1, is %",
    valid, d.bias = floats(4, 1, 1, 1, SK); d.bias.rank = n)
FORWARD_EACH(large_ranks, RANK, "bias.rank must be that of [Sk], [Sq,Sk], [H,Sq,Sk] or [B,H,Sq,Sk]: 4, is %",
    valid, d.bias = floats(4, 1, 1, 1, SK); d.bias.rank = n)
FORWARD(RANK, "bias.rank must be that of [N] or [H,N] with bias_index: 2, is 3",
    indexed, d.bias = floats(3, 1, H, 4, 0))
FORWARD(SIZE, "bias.size[0] " BROADCAST ": 4, is 2", valid, d.bias = floats(3, HKV, SQ, SK, 0))
FORWARD(SIZE, "bias.size[0] " BROADCAST ": 2, is 3", padded, d.bias = floats(4, 3, 1, SQ, SK))
FORWARD(SIZE, "bias.size[0] must be 1 or that of the heads, with bias_index: 4, is 2", indexed, d.bias.size[0] = 2)
FORWARD(SIZE, "bias.size[3] " BROADCAST ": 5, is 6", valid, d.bias = floats(4, B, H, SQ, SK + 1); d.bias.stride[0] = 0)
FORWARD_EACH(other_floats, TYPE, "bias.type must be " FLOATS ", is %",
    valid, d.bias = floats(1, SK, 0, 0, 0); d.bias.type = n)
FORWARD(RANGE, "bias_index must be within the table: at most: -1, is 0 at [0,0]", indexed, d.bias.size[1] = 0)
FORWARD(RANGE, "bias_index must be within the table: at most: 3, is 4 at [0,2]", indexed, seq.index[2] = 4)
FORWARD(RANGE, "bias_index must be within the table: at most: 3, is 4 at [2,0]", back, seq.index[0] = 4)
FORWARD(RANGE, "bias_index must be within the table: at most: 3, is 5 at [0,4]", back, seq.index[6] = 5)
FORWARD(RANGE, "bias_index must be within the table: at most: 3, is 4 at [2,4]", forth, seq.index[6] = 4)
FORWARD(RANGE, "bias_index must be within the table: at most: 3, is 4 at [1,4]", forth, seq.index[5] = 4)
FORWARD(NULL, "bias_index.data must not be NULL", indexed, d.bias_index.data = 0)
FORWARD(SIZE, "bias_index.size[1] " BROADCAST ": 5, is 4", indexed, d.bias_index.size[1] = 4)
FORWARD(TYPE, "bias_index.type must be ATTN_I32 or ATTN_I64, is ATTN_F32", indexed, d.bias_index.type = ATTN_F32)
FORWARD(NULL, "bilinear must be given for ATTN_SCORE_BILINEAR", bilinear, CLEAR(d.bilinear))
FORWARD_EACH(without_views, OPTION, "bilinear counts for ATTN_SCORE_BILINEAR only",
    valid, d.score = n; d.bilinear = floats(2, D, D, 0, 0))
FORWARD(NULL, "bilinear.data must not be NULL", bilinear, d.bilinear.data = 0)
FORWARD(RANK, "bilinear.rank must be that of [Dq,Dk] or [H,Dq,Dk]: 2, is 1", bilinear, d.bilinear.rank = 1)
FORWARD(RANK, "bilinear.rank must be that of [Dq,Dk] or [H,Dq,Dk]: 3, is 4",
    bilinear, d.bilinear = floats(4, 1, 1, D, D))
FORWARD_EACH(four_and_five, RANK, "bilinear.rank must be that of [Dq,Dk] or [H,Dq,Dk]: 3, is %",
    bilinear, d.bilinear.rank = n)
FORWARD(SIZE, "bilinear.size[0] must equal q.size[3]: 4, is 3", bilinear, d.bilinear.size[0] = D - 1)
FORWARD(SIZE, "bilinear.size[0] must equal q.size[1]: 4, is 2", bilinear, d.bilinear = floats(3, HKV, D, D, 0))
FORWARD(SIZE, "bilinear.size[1] must equal k.size[3]: 4, is 3", bilinear, d.bilinear.size[1] = D - 1)
FORWARD(NULL, "carry_in.data must not be NULL", last_part, d.carry_in.data = 0)
FORWARD(RANK, "carry_in.rank " OF_HEADS("Sq,Dv+2") ": 4, is 0", last_part, d.carry_in.rank = 0)
FORWARD(RANK, "carry_in.rank " OF_HEADS("Sq,Dv+2") ": 4, is 3", last_part, d.carry_in.rank = 3)
FORWARD(RANK, "carry_in.rank " OF_HEADS("Sq,Dv+2") ": 4, is 0", valid, d.carry_in.data = m.small)
FORWARD(SIZE, "carry_in.size[0] must equal q.size[0]: 2, is 1", last_part, d.carry_in.size[0] = 1)
FORWARD(SIZE, "carry_in.size[1] must equal q.size[1]: 4, is 2", last_part, d.carry_in.size[1] = HKV)
FORWARD(SIZE, "carry_in.size[2] must equal q.size[2]: 3, is 2", last_part, d.carry_in.size[2] = SQ - 1)
FORWARD(SIZE, "carry_in.size[3] must equal v.size[3] + 2: 5, is 3", last_part, d.carry_in.size[3] = DV)
FORWARD(TYPE, "carry_in.type must be ATTN_F32, is ATTN_F16", last_part, d.carry_in.type = ATTN_F16)
FORWARD(OVERLAP, "carry_out must not overlap an input",
    middle_part, d.carry_in = attn_view_of(d.carry_out); d.carry_in.stride[0] = d.carry_out.stride[1];
        d.carry_in.stride[1] = d.carry_out.stride[0]) /* not as it lies there */
FORWARD(NULL, "carry_out.data must not be NULL", middle_part, d.carry_out.data = 0)
FORWARD(RANK, "carry_out.rank " OF_HEADS("Sq,Dv+2") ": 4, is 0", middle_part, d.carry_out.rank = 0)
FORWARD(RANK, "carry_out.rank " OF_HEADS("Sq,Dv+2") ": 4, is 0", valid, d.carry_out.data = m.raw)
FORWARD(SIZE, "carry_out.size[3] must equal v.size[3] + 2: 5, is 4", middle_part, d.carry_out.size[3] = DV + 1)
FORWARD(STRIDE, "carry_out.stride " OVERLAPS_ITSELF, middle_part, d.carry_out.stride[0] = 0)
FORWARD(TYPE, "carry_out.type must be ATTN_F32, is ATTN_BF16", middle_part, d.carry_out.type = ATTN_BF16)
FORWARD_EACH(no_flags, OPTION, "causal must be 0 or 1", square, d.causal = n)
FORWARD(RANGE, "dropout must be within 0..1", valid, d.dropout = -FLT_MIN)
FORWARD(RANGE, "dropout must be within 0..1", valid, d.dropout = 1 + FLT_EPSILON)
FORWARD_EACH(each_odd, RANGE, "dropout must be within 0..1", valid, d.dropout = odd[n])
FORWARD(OPTION, "empty must not be ATTN_EMPTY_UNIFORM where keys come in parts",
    last_part, d.empty = ATTN_EMPTY_UNIFORM)
FORWARD(OPTION, "empty must be one of attn_empty", valid, d.empty = ATTN_EMPTY_COUNT)
FORWARD_EACH(unknown, OPTION, "empty must be one of attn_empty", valid, d.empty = n)
FORWARD(NULL, "given_scores must be given for ATTN_SCORE_GIVEN", given, CLEAR(d.given_scores))
FORWARD_EACH(without_views, OPTION, "given_scores counts for ATTN_SCORE_GIVEN only",
    valid, d.score = n; d.given_scores = floats(4, B, H, SQ, SK))
FORWARD(NULL, "given_scores.data must not be NULL", given, d.given_scores.data = 0)
FORWARD(RANK, "given_scores.rank " OF_HEADS("Sq,Sk") ": 4, is 3", given, d.given_scores.rank = 3)
FORWARD_EACH(without_views, OPTION, "hidden_bias counts for ATTN_SCORE_ADDITIVE only",
    valid, d.score = n; d.hidden_bias = floats(1, HIDDEN, 0, 0, 0))
FORWARD(NULL, "hidden_bias.data must not be NULL", additive, d.hidden_bias.data = 0)
FORWARD(RANK, "hidden_bias.rank must be that of [h] or [H,h]: 2, is 3", additive, d.hidden_bias.rank = 3)
FORWARD(SIZE, "hidden_bias.size[0] must equal w_v.size[0]: 6, is 1", additive, d.hidden_bias.size[0] = 1)
FORWARD(OPTION, "isa must be one of attn_isa", valid, d.isa = ATTN_ISA_COUNT)
FORWARD_EACH(unknown, OPTION, "isa must be one of attn_isa", valid, d.isa = n)
FORWARD(NULL, "k must be given", valid, CLEAR(d.k))
FORWARD(OPTION, "k must be absent for ATTN_SCORE_GIVEN", given, d.k = attn_view_bhsd(m.k, B, HKV, SK, D))
FORWARD(OVERFLOW, "k must make B*H*Sq*Sk a number that can be counted",
    valid, d.q.size[2] = FAR; CLEAR(d.q.stride); d.k.size[2] = d.v.size[2] = FAR; CLEAR(d.k.stride);
        CLEAR(d.v.stride); no_results(&d); d.lse = attn_out_f32(m.lse, 3, B, H, FAR, 0))
FORWARD(OVERFLOW, "k " TOO_MANY, valid, d.k.stride[2] = INT64_MAX / 2; d.k = attn_view_slice(d.k, 2, 4, 1))
FORWARD(OVERFLOW, "k " TOO_MANY, valid, d.k.stride[0] = INT64_MIN; d.k = attn_view_slice(d.k, 0, 1, 1))
FORWARD_EACH(huge, OVERFLOW, "k " TOO_MANY, valid, d.k.size[2] = n)
FORWARD(NULL, "k.data must not be NULL", valid, d.k.data = 0)
FORWARD(RANK, "k.rank " OF_KV_HEADS("Sk,D") ": 4, is 2", valid, d.k.rank = 2)
FORWARD_EACH(wrong_ranks, RANK, "k.rank " OF_KV_HEADS("Sk,D") ": 4, is %", valid, d.k.rank = n)
FORWARD_EACH(no_axes, RANK, "k.rank " OF_KV_HEADS("Sk,D") ": 4, is -1", valid, d.k = attn_view_slice(d.k, n, 0, 1))
FORWARD_EACH(no_axes, RANK, "k.rank " OF_KV_HEADS("Sk,D") ": 4, is -1", valid, d.k = attn_view_swap(d.k, n, 2))
FORWARD_EACH(no_axes, RANK, "k.rank " OF_KV_HEADS("Sk,D") ": 4, is -1", valid, d.k = attn_view_swap(d.k, 2, n))
FORWARD_EACH(no_axes, RANK, "k.rank " OF_KV_HEADS("Sk,D") ": 4, is -1",
    valid, d.k = attn_view_swap(attn_view_slice(d.k, n, 0, 1), 0, 1))
FORWARD(SIZE, "k.size[0] must equal q.size[0]: 2, is 1", valid, d.k.size[0] = 1)
FORWARD(SIZE, "k.size[0] must equal q.size[0]: 0, is 2", valid, d.q.size[0] = 0)
FORWARD(SIZE, "k.size[1] must divide the number of query heads: 3 does not divide 4", valid, d.k.size[1] = 3)
FORWARD(SIZE, "k.size[1] must divide the number of query heads: 0 does not divide 4",
    valid, d.k.size[1] = d.v.size[1] = 0)
FORWARD(SIZE, "k.size[2] must be a multiple of ATTN_PART_KEYS where carry_out is given; the next smaller one: 0, is 5",
    middle_part, d.k.size[2] = d.v.size[2] = SK)
FORWARD_EACH(each_outside, SIZE, "k.size[2] must be at least: 0, is -1",
    valid, d.k = attn_view_slice(d.k, 2, outside[n][0], outside[n][1]))
FORWARD_EACH(each_outside, SIZE, "k.size[2] must be at least: 0, is -1",
    valid, d.k = attn_view_slice(attn_view_slice(d.k, 2, outside[n][0], outside[n][1]), 2, 0, 0))
FORWARD(SIZE, "k.size[3] must equal q.size[3]: 4, is 3", valid, d.k.size[3] = D - 1)
FORWARD(SIZE, "k.size[3] must equal the size of w_v where w_k is absent: 6, is 4", additive, CLEAR(d.w_k))
FORWARD(SIZE, "k.size[3] must equal q.size[3]: 4, is 0", valid, d.k.size[3] = 0)
FORWARD_EACH(no_floats, TYPE, "k.type must be ATTN_F32, ATTN_F16, ATTN_BF16 or ATTN_I8, is %", valid, d.k.type = n)
FORWARD(NULL, "k_scale must be given for ATTN_I8", valid, d.k.type = ATTN_I8)
FORWARD(OPTION, "k_scale counts for ATTN_I8 only", valid, store_codes(&d); d.k.type = ATTN_F32)
FORWARD(NULL, "k_scale.data must not be NULL", valid, store_codes(&d); d.k_scale.data = 0)
FORWARD(RANK, "k_scale.rank must be that of [B,Hkv,Sk,1] or [B,Hkv,Sk,ceil(D/32)]: 4, is 3",
    valid, store_codes(&d); d.k_scale.rank = 3)
FORWARD(SIZE, "k_scale.size[2] must equal k.size[2]: 5, is 4", valid, store_codes(&d); d.k_scale.size[2]--)
FORWARD(SIZE, "k_scale.size[3] must be 1, or one per 32 numbers of a row: 1, is 2",
    valid, store_codes(&d); d.k_scale.size[3] = 2)
FORWARD(SIZE, "k_scale.size[3] must be 1, or one per 32 numbers of a row: 1, is 0",
    valid, store_codes(&d); d.k_scale.size[3] = 0)
FORWARD(TYPE, "k_scale.type must be ATTN_F32 or ATTN_F16, is ATTN_BF16",
    valid, store_codes(&d); d.k_scale.type = ATTN_BF16)
FORWARD(TYPE, "k_scale.type must be ATTN_F32 or ATTN_F16, is ATTN_I8", valid, store_codes(&d); d.k_scale.type = ATTN_I8)
FORWARD(RANGE, "key_lengths must be at least: 0, is -1 at [1]", valid, d.key_lengths = ints(1, B, 0); m.ints[1] = -1)
FORWARD(RANGE, "key_lengths must be at most the size of its axis: 5, is 6 at [1]",
    valid, d.key_lengths = ints(1, B, 0); m.ints[1] = SK + 1)
FORWARD(RANGE, "key_lengths must be at most the size of its axis: 5, is 6 at [1,2]",
    valid, d.key_lengths = ints(2, B, SQ); m.ints[B * SQ - 1] = SK + 1)
FORWARD(RANGE, "key_lengths must be at least: 0, is -2147483648 at [0,1]",
    valid, d.key_lengths = ints(2, B, SQ); m.ints[1] = INT32_MIN)
FORWARD(RANGE, "key_lengths must be at most Sk - key_starts: 1, is 2 at [1,2]",
    padded, d.key_lengths = attn_view_i32(seq.per_query, 2, B, SQ, 0, 0); seq.per_query[SQ + 2] = 2)
FORWARD(RANGE, "key_lengths must be at most the size of its axis: 4, is 5 at [1]", paged, seq.key_lengths[1] = 5)
FORWARD_EACH(far_lengths, RANGE, "key_lengths must be at most the size of its axis: 5, is % at [1]",
    valid, d.key_lengths = longs(1, n))
FORWARD_EACH(far_below, RANGE, "key_lengths must be at least: 0, is % at [1]", valid, d.key_lengths = longs(1, n))
FORWARD(NULL, "key_lengths must be given where keys are packed, or an entry would have all that follow",
    packed, CLEAR(d.key_lengths))
FORWARD(NULL, "key_lengths must be given where keys are packed, or an entry would have all that follow",
    packed, CLEAR(d.key_lengths); CLEAR(d.query_lengths))
FORWARD(NULL, "key_lengths.data must not be NULL", valid, d.key_lengths = attn_view_i32(0, 1, B, 0, 0, 0))
FORWARD(RANK, "key_lengths.rank must be that of [B] or [B,Sq]: 2, is 3",
    valid, d.key_lengths = attn_view_i32(m.ints, 3, B, 1, 1, 0))
FORWARD(SIZE, "key_lengths.size[0] must equal q.size[0]: 2, is 1", valid, d.key_lengths = ints(1, 1, 0))
FORWARD(SIZE, "key_lengths.size[0] must equal q.size[0]: 1, is 2",
    packed, d.key_lengths = attn_view_i32(seq.per_query, 2, B, SQ, 0, 0))
FORWARD(SIZE, "key_lengths.size[1] must equal q.size[2]: 3, is 2", valid, d.key_lengths = ints(2, B, SQ - 1))
FORWARD(OVERFLOW, "key_lengths.stride must keep the extent within memory",
    valid, d.key_lengths = ints(1, B, 0); d.key_lengths.stride[0] = INT64_MIN)
FORWARD(TYPE, "key_lengths.type must be ATTN_I32 or ATTN_I64, is ATTN_F32",
    valid, d.key_lengths = floats(1, B, 0, 0, 0))
FORWARD(RANGE, "key_origin must be at least: 0, is -256", last_part, d.key_origin = -ATTN_PART_KEYS)
FORWARD(RANGE, "key_origin must be a multiple of ATTN_PART_KEYS; the next smaller one: 256, is 257",
    last_part, d.key_origin = 257)
FORWARD(RANGE, "key_origin must be at most: 4611686018427387904, is 9223372036854775807",
    last_part, d.key_origin = INT64_MAX)
FORWARD(RANGE, "key_starts plus key_lengths must be at most Sk: 5, is 6 at [0]", padded, seq.key_starts[0] = SK + 1)
FORWARD(RANGE, "key_starts plus key_lengths must be at most Sk: 5, is 9223372036854775807 at [1]",
    padded, seq.key_lengths[1] = 3; d.key_lengths = seq_ints(seq.key_lengths); d.key_starts = longs(1, INT64_MAX))
FORWARD(RANGE, "key_starts plus key_lengths must be at most Sk: 5, is 6 at [1]",
    padded, d.key_lengths = seq_ints(seq.key_lengths); seq.key_lengths[1] = 2)
FORWARD(RANGE, "key_starts plus key_lengths must be at most Sk: 10, is 11 at [1]", packed, seq.key_starts[1] = 6)
FORWARD(RANGE, "key_starts plus key_lengths must be at most Sk: 4, is 5 at [0]",
    paged, seq.key_starts[0] = 1; d.key_starts = seq_ints(seq.key_starts))
FORWARD_EACH(negative_32, RANGE, "key_starts must be at least: 0, is % at [0]", padded, seq.key_starts[0] = n)
FORWARD(NULL, "key_starts.data must not be NULL", padded, d.key_starts.data = 0)
FORWARD(RANK, "key_starts.rank must be that of [B]: 1, is 4", padded, d.key_starts.rank = 4)
FORWARD(RANK, "key_starts.rank must be that of [B]: 1, is 0", valid, d.key_starts.data = m.ints)
FORWARD(SIZE, "key_starts.size[0] must equal query_starts.size[0]: 2, is 1", padded, d.key_starts.size[0] = 1)
FORWARD(TYPE, "key_starts.type must be ATTN_I32 or ATTN_I64, is ATTN_U8", padded, d.key_starts.type = ATTN_U8)
FORWARD(OVERLAP, "lse must not overlap another output", valid, d.lse.data = m.weights)
FORWARD(OVERLAP, "lse must not overlap an input", valid, d.sink = attn_view_f32(m.lse, 1, H, 0, 0, 0))
FORWARD(OVERLAP, "lse must not overlap an input", additive, d.lse.data = m.small)
FORWARD(OVERLAP, "lse must not overlap an input", bilinear, d.lse.data = m.small + 1)
FORWARD(NULL, "lse.data must not be NULL", valid, d.lse.data = 0)
FORWARD(RANK, "lse.rank " OF_HEADS("Sq") ": 3, is 4", valid, d.lse.rank = 4)
FORWARD(SIZE, "lse.size[0] must equal q.size[0]: 2, is 1", valid, d.lse.size[0] = 1)
FORWARD(SIZE, "lse.size[1] must equal q.size[1]: 4, is 1", valid, d.lse.size[1] = 1)
FORWARD(SIZE, "lse.size[2] must equal q.size[2]: 3, is 1", valid, d.lse.size[2] = 1)
FORWARD(STRIDE, "lse.stride " OVERLAPS_ITSELF, valid, d.lse.stride[0] = 0)
FORWARD_EACH(not_f32, TYPE, "lse.type must be ATTN_F32, is %", valid, d.lse.type = n)
FORWARD_EACH(no_floats, TYPE, "lse.type must be ATTN_F32, is %", valid, d.lse.type = n)
FORWARD(RANGE, "mask must have a column for each key of the longest entry: 5, is 1 at [0]",
    packed, d.mask = mask(2, B * SQ, 1, 0, 0))
FORWARD_EACH(huge, OVERFLOW, "mask " TOO_MANY, valid, d.mask = mask(2, n, SK, 0, 0))
FORWARD_EACH(one_to_three, OVERFLOW, "mask " TOO_MANY,
    valid, d.mask = cut_out(attn_view_u8(m.mask, 3, 4, FAR, FAR, 0), n))
FORWARD(NULL, "mask.data must not be NULL", valid, d.mask = attn_view_u8(0, 1, SK, 0, 0, 0))
FORWARD(RANK, "mask.rank must be that of [Sk], [Sq,Sk], [H,Sq,Sk] or [B,H,Sq,Sk]: 1, is 0", valid, d.mask.data = m.mask)
FORWARD_EACH(negative_32, RANK, "mask.rank must be that of [Sk], [Sq,Sk], [H,Sq,Sk] or [B,H,Sq,Sk]: 1, is %",
    valid, d.mask = mask(4, 1, 1, 1, SK); d.mask.rank = n)
FORWARD_EACH(large_ranks, RANK, "mask.rank must be that of [Sk], [Sq,Sk], [H,Sq,Sk] or [B,H,Sq,Sk]: 4, is %",
    valid, d.mask = mask(4, 1, 1, 1, SK); d.mask.rank = n)
FORWARD(SIZE, "mask.size[0] " BROADCAST ": 5, is 4", valid, d.mask = mask(1, SK - 1, 0, 0, 0))
FORWARD(SIZE, "mask.size[0] " BROADCAST ": 3, is 2", valid, d.mask = mask(2, 2, SK, 0, 0))
FORWARD(SIZE, "mask.size[0] must be at least: 0, is -5", valid, d.mask = mask(1, -SK, 0, 0, 0))
FORWARD(SIZE, "mask.size[0] " BROADCAST ": 4, is 5", paged, d.mask = mask(1, 5, 0, 0, 0)) /* Sk is 4 */
FORWARD(SIZE, "mask.size[0] " BROADCAST ": 0, is 4", paged, d.k.size[2] = d.v.size[2] = 0; d.mask = mask(1, 4, 0, 0, 0))
FORWARD(SIZE, "mask.size[0] " BROADCAST ": 0, is 4", paged, d.page_table.size[1] = 0; d.mask = mask(1, 4, 0, 0, 0))
FORWARD(SIZE, "mask.size[1] " BROADCAST ": 4, is 2", valid, d.mask = mask(4, B, HKV, SQ, SK))
FORWARD_EACH(up_to_15, OVERFLOW, "mask.stride must keep the extent within memory",
    valid, d.mask = mask(2, SQ, SK, 0, 0); d.mask.stride[0] = (E62 + 100 * n) / 2)
FORWARD_EACH(up_to_15, OVERFLOW, "mask.stride must keep the extent within memory",
    valid, d.mask = mask(2, SQ, SK, 0, 0); d.mask.stride[0] = E62 / 2 + n * (E62 / 32))
FORWARD(TYPE, "mask.type must be ATTN_U8, is ATTN_F32", valid, d.mask = floats(1, SK, 0, 0, 0))
FORWARD_EACH(no_bytes, TYPE, "mask.type must be ATTN_U8, is %", valid, d.mask = mask(1, SK, 0, 0, 0); d.mask.type = n)
FORWARD_EACH(no_bytes, TYPE, "mask.type must be ATTN_U8, is %",
    square, d.mask = floats(2, SQ, SQ, 0, 0); d.mask.type = n)
FORWARD(OVERLAP, "out must not overlap an input", valid, store_codes(&d); d.k_scale.data = d.out.data)
FORWARD(OVERLAP, "out must not overlap an input", valid, d.out.data = m.q)
FORWARD(OVERLAP, "out must not overlap an input", valid, d.out.data = m.q + B * H * SQ * D - 1)
FORWARD(OVERLAP, "out must not overlap an input", valid, d.out.data = m.k - 1)
FORWARD(OVERLAP, "out must not overlap an input", valid, d.out.data = m.v)
FORWARD(OVERLAP, "out must not overlap another output", valid, d.out.data = m.lse - 1)
FORWARD(OVERLAP, "out must not overlap another output", valid, d.out.data = m.lse)
FORWARD(OVERLAP, "out must not overlap an input",
    valid, d.alibi = attn_view_f32(m.out, 1, H, 0, 0, 0); d.align = ATTN_ALIGN_BOTTOM_RIGHT)
FORWARD(OVERLAP, "out must not overlap an input", gaussian, d.sigma_per_head = slopes(); d.out.data = m.small)
FORWARD(OVERLAP, "out must not overlap an input", padded, d.query_starts.data = m.out)
FORWARD(OVERLAP, "out must not overlap an input", indexed, d.bias_index.data = m.out)
FORWARD(OVERLAP, "out must not overlap an input", paged, d.page_table.data = m.out)
FORWARD(OVERLAP, "out must not overlap another output",
    middle_part, d.carry_out.data = m.out; d.out = attn_out_bhsd(m.out, B, H, SQ, DV))
FORWARD_EACH(huge, OVERFLOW, "out " TOO_MANY, valid, d.out.size[3] = n)
FORWARD(NULL, "out.data must not be NULL", valid, d.out.data = 0)
FORWARD(RANK, "out.rank " OF_HEADS("Sq,Dv") ": 4, is 3", valid, d.out.rank = 3)
FORWARD(RANK, "out.rank " OF_HEADS("Sq,Dv") ": 4, is 0", valid, d.out.rank = 0)
FORWARD_EACH(wrong_ranks, RANK, "out.rank " OF_HEADS("Sq,Dv") ": 4, is %", valid, d.out.rank = n)
FORWARD_EACH(no_axes, RANK, "out.rank " OF_HEADS("Sq,Dv") ": 4, is -1", valid, d.out = attn_out_slice(d.out, n, 0, 1))
FORWARD(SIZE, "out.size[0] must equal q.size[0]: 2, is 1", valid, d.out.size[0] = 1)
FORWARD(SIZE, "out.size[0] must equal q.size[0]: 1, is 2", packed, d.out = attn_out_bhsd(m.out, B, H, SQ, DV))
FORWARD(SIZE, "out.size[1] must equal q.size[1]: 4, is 2", valid, d.out.size[1] = HKV)
FORWARD(SIZE, "out.size[2] must equal q.size[2]: 3, is 2", valid, d.out.size[2] = SQ - 1)
FORWARD(SIZE, "out.size[2] must be at least: 0, is -1", valid, d.out.size[2] = -1)
FORWARD(SIZE, "out.size[3] must equal v.size[3]: 3, is 2", valid, d.out.size[3] = DV - 1)
FORWARD(STRIDE, "out.stride " OVERLAPS_ITSELF, valid, d.out.stride[3] = 0)
FORWARD(STRIDE, "out.stride " OVERLAPS_ITSELF, valid, d.out.stride[2] = DV - 1)
FORWARD(STRIDE, "out.stride " OVERLAPS_ITSELF, valid, d.out.stride[2] = -(DV - 1))
FORWARD(STRIDE, "out.stride " OVERLAPS_ITSELF, valid, d.out.stride[0] = d.out.stride[1])
FORWARD_EACH(huge, OVERFLOW, "out.stride must keep the extent within memory", valid, d.out.stride[1] = n)
FORWARD_EACH(other_floats, TYPE, "out.type must be " FLOATS ", is %", valid, d.out.type = n)
FORWARD(OPTION, "page_table must be absent where no k and v are given: it says where their rows lie",
    given, d.page_table = attn_view_i32(seq.table, 2, B, 2, 0, 0); CLEAR(d.v); CLEAR(d.out))
FORWARD(RANGE, "page_table must be a page of the pool: at most: 4, is 5 at [0,1]", paged, seq.table[1] = 5)
FORWARD(RANGE, "page_table must be at least: 0, is -1 at [1,1]", paged, seq.table[3] = -1)
FORWARD(NULL, "page_table.data must not be NULL", paged, d.page_table.data = 0)
FORWARD(RANK, "page_table.rank must be that of [B,pages]: 2, is 1", paged, d.page_table.rank = 1)
FORWARD(RANK, "page_table.rank must be that of [B,pages]: 2, is 0", valid, d.page_table.data = m.ints)
FORWARD(SIZE, "page_table.size[0] must equal q.size[0]: 2, is 1",
    paged, d.page_table = attn_view_i32(seq.table, 2, 1, 2, 0, 0))
FORWARD(TYPE, "page_table.type must be ATTN_I32 or ATTN_I64, is ATTN_BF16", paged, d.page_table.type = ATTN_BF16)
FORWARD(RANGE, "parallel.workers must not be negative", valid, d.parallel.workers = -1)
FORWARD(NULL, "positions must be given for ATTN_ALIGN_POSITIONS", valid, d.align = ATTN_ALIGN_POSITIONS)
FORWARD_EACH(far_ahead, RANGE, "positions must be at most: 4611686018427387904, is % at [1]",
    valid, d.align = ATTN_ALIGN_POSITIONS; d.positions = longs(1, n))
FORWARD_EACH(far_ahead, RANGE, "positions must be at most: 4611686018427387904, is % at [1]",
    valid, d.align = ATTN_ALIGN_POSITIONS; d.positions = longs(1, n); d.causal = 1)
FORWARD_EACH(far_ahead, RANGE, "positions must be at most: 4611686018427387904, is % at [1]",
    valid, d.align = ATTN_ALIGN_POSITIONS; d.positions = longs(1, n); d.window = d.window_left = 1)
FORWARD_EACH(far_behind, RANGE, "positions must be at least: -4611686018427387904, is % at [1]",
    valid, d.align = ATTN_ALIGN_POSITIONS; d.positions = longs(1, n))
FORWARD_EACH(far_ahead, RANGE, "positions must be at most: 4611686018427387904, is % at [1,2]",
    valid, d.align = ATTN_ALIGN_POSITIONS; d.positions = longs(2, n))
FORWARD_EACH(far_behind, RANGE, "positions must be at least: -4611686018427387904, is % at [1,2]",
    valid, d.align = ATTN_ALIGN_POSITIONS; d.positions = longs(2, n))
FORWARD(NULL, "positions.data must not be NULL",
    valid, d.align = ATTN_ALIGN_POSITIONS; d.positions = attn_view_i32(0, 1, B, 0, 0, 0))
FORWARD(RANK, "positions.rank must be that of [B] or [B,Sq]: 2, is 3",
    valid, d.align = ATTN_ALIGN_POSITIONS; d.positions = attn_view_i32(m.ints, 3, B, SQ, 1, 0))
FORWARD(SIZE, "positions.size[0] must equal q.size[0]: 2, is 3",
    valid, d.align = ATTN_ALIGN_POSITIONS; d.positions = ints(1, SQ, 0))
FORWARD(SIZE, "positions.size[1] must equal q.size[2]: 3, is 1",
    valid, d.align = ATTN_ALIGN_POSITIONS; d.positions = ints(2, B, 1))
FORWARD(TYPE, "positions.type must be ATTN_I32 or ATTN_I64, is ATTN_F32",
    valid, d.align = ATTN_ALIGN_POSITIONS; d.positions = floats(1, B, 0, 0, 0))
FORWARD_EACH(no_ints, TYPE, "positions.type must be ATTN_I32 or ATTN_I64, is %",
    square, d.align = ATTN_ALIGN_POSITIONS; d.positions = ints(1, B, 0); d.positions.type = n)
FORWARD(OPTION, "precision must be one of attn_precision", valid, d.precision = ATTN_PRECISION_COUNT)
FORWARD_EACH(unknown, OPTION, "precision must be one of attn_precision", valid, d.precision = n)
FORWARD(NULL, "q must be given", valid, CLEAR(d.q))
FORWARD(OPTION, "q must be absent for ATTN_SCORE_GIVEN", given, d.q = attn_view_bhsd(m.q, B, H, SQ, D))
FORWARD_EACH(huge, OVERFLOW, "q " TOO_MANY, valid, d.q.size[0] = n)
FORWARD_EACH(huge, OVERFLOW, "q " TOO_MANY, valid, d.q.size[0] = d.q.size[1] = d.q.size[2] = d.q.size[3] = n)
FORWARD(NULL, "q.data must not be NULL", valid, d.q.data = 0)
FORWARD(RANK, "q.rank " OF_HEADS("Sq,D") ": 4, is 3", valid, d.q.rank = 3)
FORWARD(RANK, "q.rank " OF_HEADS("Sq,D") ": 4, is -1", valid, d.q = attn_view_qkv(m.q, 3, B, SQ, H, D))
FORWARD(RANK, "q.rank " OF_HEADS("Sq,D") ": 4, is 0", valid, d.q.rank = 0)
FORWARD_EACH(wrong_ranks, RANK, "q.rank " OF_HEADS("Sq,D") ": 4, is %", valid, d.q.rank = n)
FORWARD_EACH(no_parts, RANK, "q.rank " OF_HEADS("Sq,D") ": 4, is -1", valid, d.q = attn_view_qkv(m.q, n, B, SQ, H, D))
FORWARD(SIZE, "q.size[0] must be 1 (packed), or the number of starts: 3, is 2",
    padded, d.query_starts.size[0] = d.key_starts.size[0] = 3)
FORWARD(SIZE, "q.size[0] must be 1 (packed), or the number of starts: -1, is 2", padded, d.query_starts.size[0] = -1)
FORWARD(SIZE, "q.size[0] must be 1 (packed), or the number of starts: 2, is 3",
    packed, d.q = attn_view_bhsd(m.q, 3, H, 2, D))
FORWARD_EACH(negative, SIZE, "q.size[0] must be at least: 0, is %", valid, d.q.size[0] = n)
FORWARD_EACH(negative, SIZE, "q.size[1] must be at least: 0, is %", valid, d.q.size[1] = n)
FORWARD_EACH(negative, SIZE, "q.size[2] must be at least: 0, is %", valid, d.q.size[2] = n)
FORWARD(SIZE, "q.size[3] must equal the size of w_v where w_q is absent: 6, is 4", additive, CLEAR(d.w_q))
FORWARD_EACH(negative, SIZE, "q.size[3] must be at least: 0, is %", valid, d.q.size[3] = n)
FORWARD(OVERFLOW, "q.stride must keep the extent within memory", valid, d.q.stride[0] = INT64_MIN)
FORWARD_EACH(huge, OVERFLOW, "q.stride must keep the extent within memory", valid, d.q.stride[0] = n)
FORWARD_EACH(huge, OVERFLOW, "q.stride must keep the extent within memory", valid, d.q.stride[0] = -n)
FORWARD_EACH(other_floats, TYPE, "q.type must be " FLOATS ", is %", valid, d.q.type = n)
FORWARD(RANGE, "query_lengths must be at most the size of its axis: 3, is 4 at [0]",
    valid, d.query_lengths = ints(1, B, 0); m.ints[0] = SQ + 1)
FORWARD(RANGE, "query_lengths must be at least: 0, is -1 at [1]",
    valid, d.query_lengths = ints(1, B, 0); m.ints[1] = -1)
FORWARD_EACH(far_lengths, RANGE, "query_lengths must be at most the size of its axis: 3, is % at [1]",
    valid, d.query_lengths = longs(1, n))
FORWARD_EACH(far_below, RANGE, "query_lengths must be at least: 0, is % at [1]", valid, d.query_lengths = longs(1, n))
FORWARD(NULL, "query_lengths must be given where queries are packed, or an entry would have all that follow",
    packed, CLEAR(d.query_lengths))
FORWARD(NULL, "query_lengths.data must not be NULL", valid, d.query_lengths = attn_view_i64(0, 1, B, 0, 0, 0))
FORWARD(RANK, "query_lengths.rank must be that of [B]: 1, is 2", valid, d.query_lengths = ints(2, B, SQ))
FORWARD(SIZE, "query_lengths.size[0] must equal q.size[0]: 2, is 3", valid, d.query_lengths = ints(1, SQ, 0))
FORWARD(TYPE, "query_lengths.type must be ATTN_I32 or ATTN_I64, is ATTN_U8",
    valid, d.query_lengths = mask(1, B, 0, 0, 0))
FORWARD(RANGE, "query_starts plus query_lengths must be at most Sq: 3, is 4 at [1]",
    padded, seq.query_starts[1] = SQ + 1)
FORWARD(RANGE, "query_starts plus query_lengths must be at most Sq: 3, is 9223372036854775807 at [1]",
    padded, d.query_starts = longs(1, INT64_MAX))
FORWARD(RANGE, "query_starts plus query_lengths must be at most Sq: 3, is 4 at [1]",
    padded, d.query_lengths = seq_ints(seq.query_lengths); seq.query_lengths[1] = 2)
FORWARD(RANGE, "query_starts plus query_lengths must be at most Sq: 6, is 7 at [1]", packed, seq.query_starts[1] = 4)
FORWARD(RANGE, "query_starts must be at least the end of the entry before it: 3, is 2 at [1]",
    packed, seq.query_starts[1] = 2)
FORWARD(RANGE, "query_starts must be at least the end of the entry before it: 6, is 2 at [1]",
    packed, seq.query_starts[0] = 3; seq.query_starts[1] = 2)
FORWARD(RANGE, "query_starts must be at least the end of the entry before it: 6, is 0 at [1]",
    packed, seq.query_starts[0] = 3; seq.query_starts[1] = 0)  /* apart, but not in order */
FORWARD(RANGE, "query_starts must be at least the end of the entry before it: 3, is 0 at [1]",
    packed, seq.query_starts[1] = 0)
FORWARD_EACH(negative_32, RANGE, "query_starts must be at least: 0, is % at [1]", padded, seq.query_starts[1] = n)
FORWARD(NULL, "query_starts.data must not be NULL", padded, d.query_starts.data = 0)
FORWARD(RANK, "query_starts.rank must be that of [B]: 1, is 2", padded, d.query_starts.rank = 2)
FORWARD(RANK, "query_starts.rank must be that of [B]: 1, is 0", valid, d.query_starts.data = m.ints)
FORWARD(TYPE, "query_starts.type must be ATTN_I32 or ATTN_I64, is ATTN_F32", padded, d.query_starts.type = ATTN_F32)
FORWARD(OPTION, "reserved must be 0", valid, d.reserved = 1)
FORWARD_EACH(each_odd, RANGE, "scale must be finite", valid, d.scale = odd[n])
FORWARD_EACH(each_odd, RANGE, "scale must be finite", valid, d.scale = odd[n]; d.scale_set = 1)
FORWARD_EACH(kernels, OPTION, "scale must not be set for a distance kernel: sigma sets its width",
    valid, d.score = n; d.scale = 0.5f)
FORWARD_EACH(kernels, OPTION, "scale must not be set for a distance kernel: sigma sets its width",
    valid, d.score = n; d.scale_set = 1)
FORWARD_EACH(no_flags, OPTION, "scale_set must be 0 or 1", valid, d.scale_set = n)
FORWARD(OPTION, "score must be one of attn_score", valid, d.score = ATTN_SCORE_COUNT)
FORWARD_EACH(unknown, OPTION, "score must be one of attn_score", valid, d.score = n)
FORWARD(OVERLAP, "scores must not overlap another output", valid, d.scores.data = d.scores_softcap.data)
FORWARD(OPTION, "scores must be absent where queries or keys are packed",
    packed, d.scores = attn_out_bhsd(m.gradients[0], 1, H, B * SQ, B * SK))
FORWARD(OPTION, "scores must be absent where keys come in parts",
    last_part, d.scores = attn_out_bhsd(m.raw, B, H, SQ, SK))
FORWARD(NULL, "scores.data must not be NULL", valid, d.scores.data = 0)
FORWARD(SIZE, "scores.size[3] must equal k.size[2]: 5, is 4", valid, d.scores.size[3] = SK - 1)
FORWARD(STRIDE, "scores.stride " OVERLAPS_ITSELF, valid, d.scores.stride[2] = 1)
FORWARD(STRIDE, "scores.stride " OVERLAPS_ITSELF, valid, d.scores.stride[2] = -1)
FORWARD(OVERLAP, "scores_masked must not overlap an input", valid, d.scores_masked.data = m.k)
FORWARD(OPTION, "scores_masked must be absent where keys come in parts",
    last_part, d.scores_masked = attn_out_bhsd(m.masked, B, H, SQ, SK))
FORWARD(NULL, "scores_masked.data must not be NULL", valid, d.scores_masked.data = 0)
FORWARD(SIZE, "scores_masked.size[0] must equal q.size[0]: 2, is 1", valid, d.scores_masked.size[0] = 1)
FORWARD(STRIDE, "scores_masked.stride " OVERLAPS_ITSELF, valid, d.scores_masked.stride[3] = 0)
FORWARD(OVERLAP, "scores_softcap must not overlap another output", valid, d.scores_softcap.data = d.scores_masked.data)
FORWARD(OPTION, "scores_softcap must be absent where keys come in parts",
    last_part, d.scores_softcap = attn_out_bhsd(m.softcap, B, H, SQ, SK))
FORWARD(NULL, "scores_softcap.data must not be NULL", valid, d.scores_softcap.data = 0)
FORWARD(SIZE, "scores_softcap.size[1] must equal q.size[1]: 4, is 1", valid, d.scores_softcap.size[1] = 1)
FORWARD(STRIDE, "scores_softcap.stride " OVERLAPS_ITSELF, valid, d.scores_softcap.stride[2] = 0)
FORWARD(RANGE, "sigma must be within 1e-18..1e18, or 0 for 1", gaussian, d.sigma = -1)
FORWARD(OPTION, "sigma must be 0 where sigma_per_head is given", gaussian, d.sigma = 1; d.sigma_per_head = slopes())
FORWARD_EACH(each_odd, RANGE, "sigma must be within 1e-18..1e18, or 0 for 1", gaussian, d.sigma = odd[n])
FORWARD_EACH(without_sigma, OPTION, "sigma counts for the distance kernels only", valid, d.score = n; d.sigma = 1)
FORWARD(RANGE, "sigma_per_head must be within 1e-18..1e18", gaussian, d.sigma_per_head = slopes(); m.small[0] = 0)
FORWARD(RANGE, "sigma_per_head must be within 1e-18..1e18", gaussian, d.sigma_per_head = slopes(); m.small[2] = -1)
FORWARD_EACH(each_odd, RANGE, "sigma_per_head must be within 1e-18..1e18",
    gaussian, d.sigma_per_head = slopes(); m.small[H - 1] = odd[n])
FORWARD_EACH(without_sigma, OPTION, "sigma_per_head counts for the distance kernels only",
    valid, d.score = n; d.sigma_per_head = slopes())
FORWARD(NULL, "sigma_per_head.data must not be NULL", gaussian, d.sigma_per_head = attn_view_f32(0, 1, H, 0, 0, 0))
FORWARD(RANK, "sigma_per_head.rank must be that of [H]: 1, is 2", gaussian, d.sigma_per_head = floats(2, H, 1, 0, 0))
FORWARD(SIZE, "sigma_per_head.size[0] must equal q.size[1]: 4, is 2",
    gaussian, d.sigma_per_head = floats(1, HKV, 0, 0, 0))
FORWARD(NULL, "sink.data must not be NULL", valid, d.sink = attn_view_f32(0, 1, H, 0, 0, 0))
FORWARD(RANK, "sink.rank must be that of [H]: 1, is 2", valid, d.sink = floats(2, 1, H, 0, 0))
FORWARD(SIZE, "sink.size[0] must equal q.size[1]: 4, is 1", valid, d.sink = floats(1, 1, 0, 0, 0))
FORWARD_EACH(no_floats, TYPE, "sink.type must be " FLOATS ", is %",
    valid, d.sink = floats(1, H, 0, 0, 0); d.sink.type = n)
FORWARD(RANGE, "softcap must be finite and > 0, or 0 for none", valid, d.softcap = -1)
FORWARD_EACH(each_odd, RANGE, "softcap must be finite and > 0, or 0 for none", valid, d.softcap = odd[n])
FORWARD(OVERLAP, "stats must not overlap an input", valid, d.stats.data = m.v)
FORWARD(NULL, "stats.data must not be NULL", valid, d.stats.data = 0)
FORWARD(RANK, "stats.rank " OF_HEADS("Sq,2") ": 4, is 3", valid, d.stats.rank = 3)
FORWARD(SIZE, "stats.size[0] must equal q.size[0]: 2, is 1", valid, d.stats.size[0] = 1)
FORWARD(SIZE, "stats.size[2] must equal q.size[2]: 3, is 1", valid, d.stats.size[2] = 1)
FORWARD(SIZE, "stats.size[3] must be: 2, is 1", valid, d.stats.size[3] = 1)
FORWARD(SIZE, "stats.size[3] must be: 2, is 3", valid, d.stats = attn_out_bhsd(m.gradients[0], B, H, SQ, 3))
FORWARD(STRIDE, "stats.stride " OVERLAPS_ITSELF, valid, d.stats.stride[3] = 0)
FORWARD_EACH(not_f32, TYPE, "stats.type must be ATTN_F32, is %", valid, d.stats.type = n)
FORWARD(NULL, "v must be given where out is", valid, CLEAR(d.v))
FORWARD(NULL, "v.data must not be NULL", valid, d.v.data = 0)
FORWARD(RANK, "v.rank " OF_KV_HEADS("Sk,Dv") ": 4, is 1", valid, d.v.rank = 1)
FORWARD_EACH(wrong_ranks, RANK, "v.rank " OF_KV_HEADS("Sk,Dv") ": 4, is %", valid, d.v.rank = n)
FORWARD(SIZE, "v.size[0] must equal q.size[0]: 2, is 1", valid, d.v.size[0] = 1)
FORWARD(SIZE, "v.size[0] must equal k.size[0]: 1, is 2", packed, d.v = attn_view_bhsd(m.v, B, HKV, SK, DV))
FORWARD(SIZE, "v.size[0] must equal k.size[0]: 5, is 4", paged, d.v.size[0] = 4)
FORWARD(SIZE, "v.size[1] must equal k.size[1]: 2, is 1", valid, d.v.size[1] = 1)
FORWARD(SIZE, "v.size[1] must divide the number of query heads: 3 does not divide 4",
    given, d.v.size[1] = 3; d.v.stride[1] = 0)
FORWARD(SIZE, "v.size[2] must equal k.size[2]: 5, is 4", valid, d.v.size[2] = SK - 1)
FORWARD(SIZE, "v.size[2] must equal given_scores.size[3]: 5, is 4", given, d.v.size[2] = SK - 1)
FORWARD(SIZE, "v.size[2] must equal k.size[2]: 0, is 5", valid, d.k.size[2] = 0)
FORWARD(SIZE, "v.size[2] must equal k.size[2]: 2, is 1", paged, d.v.size[2] = 1)
FORWARD(OVERFLOW, "v.stride must keep the extent within memory",
    valid, d.v.stride[0] = (int64_t)1 << 61; d.v.stride[1] = -((int64_t)1 << 61))
FORWARD_EACH(no_floats, TYPE, "v.type must be ATTN_F32, ATTN_F16, ATTN_BF16 or ATTN_I8, is %", valid, d.v.type = n)
FORWARD(NULL, "v_scale must be given for ATTN_I8", valid, d.v.type = ATTN_I8)
FORWARD(OPTION, "v_scale counts for ATTN_I8 only", valid, store_codes(&d); d.v_scale = d.k_scale)
FORWARD_EACH(without_views, OPTION, "w_k counts for ATTN_SCORE_ADDITIVE only",
    valid, d.score = n; d.w_k = floats(2, HIDDEN, D, 0, 0))
FORWARD(NULL, "w_k.data must not be NULL", additive, d.w_k.data = 0)
FORWARD(RANK, "w_k.rank must be that of [h,Dk] or [H,h,Dk]: 2, is 1", additive, d.w_k.rank = 1)
FORWARD_EACH(four_and_five, RANK, "w_k.rank must be that of [h,Dk] or [H,h,Dk]: 3, is %", additive, d.w_k.rank = n)
FORWARD(SIZE, "w_k.size[0] must equal w_v.size[0]: 6, is 5", additive, d.w_k.size[0] = HIDDEN - 1)
FORWARD(SIZE, "w_k.size[2] must equal k.size[3]: 4, is 3",
    additive, d.w_k = floats(3, H, HIDDEN, D - 1, 0); d.w_k.stride[0] = 0)
FORWARD_EACH(without_views, OPTION, "w_q counts for ATTN_SCORE_ADDITIVE only",
    valid, d.score = n; d.w_q = floats(2, HIDDEN, D, 0, 0))
FORWARD(NULL, "w_q.data must not be NULL", additive, d.w_q.data = 0)
FORWARD(RANK, "w_q.rank must be that of [h,Dq] or [H,h,Dq]: 2, is 1", additive, d.w_q.rank = 1)
FORWARD_EACH(four_and_five, RANK, "w_q.rank must be that of [h,Dq] or [H,h,Dq]: 3, is %", additive, d.w_q.rank = n)
FORWARD(SIZE, "w_q.size[0] must equal w_v.size[0]: 6, is 5", additive, d.w_q.size[0] = HIDDEN - 1)
FORWARD(SIZE, "w_q.size[1] must equal q.size[3]: 4, is 3", additive, d.w_q.size[1] = D - 1)
FORWARD(NULL, "w_v must be given for ATTN_SCORE_ADDITIVE", additive, CLEAR(d.w_v))
FORWARD_EACH(without_views, OPTION, "w_v counts for ATTN_SCORE_ADDITIVE only",
    valid, d.score = n; d.w_v = floats(1, HIDDEN, 0, 0, 0))
FORWARD(NULL, "w_v.data must not be NULL", additive, d.w_v.data = 0)
FORWARD(RANK, "w_v.rank must be that of [h] or [H,h]: 2, is 3", additive, d.w_v.rank = 3)
FORWARD(SIZE, "w_v.size[0] must equal q.size[1]: 4, is 2", additive, d.w_v = floats(2, HKV, HIDDEN, 0, 0))
FORWARD_EACH(no_floats, TYPE, "w_v.type must be " FLOATS ", is %", additive, d.w_v.type = n)
FORWARD(OVERLAP, "weights must not overlap another output", valid, d.weights.data = d.scores.data)
FORWARD(OVERLAP, "weights must not overlap an input", valid, d.bias = attn_view_f32(m.weights, 1, SK, 0, 0, 0))
FORWARD(OVERLAP, "weights must not overlap an input",
    valid, d.mask = attn_view_u8((uint8_t *)m.weights + 4 * SCORES - SK, 1, SK, 0, 0, 0))
FORWARD(OVERLAP, "weights must not overlap an input",
    given, d.weights.data = m.scores) /* in place only as attn_softmax does it */
FORWARD(OPTION, "weights must be absent where queries or keys are packed",
    packed, d.weights = attn_out_bhsd(m.weights, 1, H, B * SQ, B * SK))
FORWARD(OPTION, "weights must be absent where keys come in parts",
    last_part, d.weights = attn_out_bhsd(m.weights, B, H, SQ, SK))
FORWARD(NULL, "weights.data must not be NULL", valid, d.weights.data = 0)
FORWARD(RANK, "weights.rank " OF_HEADS("Sq,Sk") ": 4, is 3", valid, d.weights.rank = 3)
FORWARD(SIZE, "weights.size[0] must equal the number of starts: 2, is 1", padded, d.weights.size[0] = 1)
FORWARD(SIZE, "weights.size[0] must equal q.size[0]: 2, is 1", valid, d.weights.size[0]--)
FORWARD(SIZE, "weights.size[1] must equal q.size[1]: 4, is 3", valid, d.weights.size[1]--)
FORWARD(SIZE, "weights.size[2] must equal q.size[2]: 3, is 2", valid, d.weights.size[2] = SQ - 1)
FORWARD(SIZE, "weights.size[3] must equal k.size[2]: 5, is 4", valid, d.weights.size[3] = SK - 1)
FORWARD(STRIDE, "weights.stride " OVERLAPS_ITSELF, valid, d.weights.stride[1] = 0)
FORWARD_EACH(huge, OVERFLOW, "weights.stride must keep the extent within memory", valid, d.weights.stride[2] = -n)
FORWARD_EACH(no_floats, TYPE, "weights.type must be " FLOATS ", is %", valid, d.weights.type = n)
FORWARD(OPTION, "weights_after_dropout counts only where weights are given",
    valid, d.weights_after_dropout = 1; d.dropout = 0.5f; CLEAR(d.weights))
FORWARD_EACH(no_flags, OPTION, "weights_after_dropout must be 0 or 1", valid, d.weights_after_dropout = n)
FORWARD_EACH(no_flags, OPTION, "window must be 0 or 1: window_left and window_right say how far it reaches",
    square, d.window = n) /* window = 4 */
FORWARD_EACH(no_flags, OPTION, "window must be 0 or 1: window_left and window_right say how far it reaches",
    square, d.window = n; d.window_left = 3)
FORWARD(RANGE, "window_left must be at least: -1, is -2", valid, d.window = 1; d.window_left = -2)
FORWARD(OPTION, "window_left counts only with window", valid, d.window_left = -77) /* what is set and cannot count */
FORWARD(OPTION, "window_left counts only with window", valid, d.window_left = ATTN_UNBOUNDED)
FORWARD(RANGE, "window_right must be at least: -1, is -2", valid, d.window = 1; d.window_right = -2)
FORWARD(RANGE, "window_right must be at least: -1, is -9223372036854775808",
    valid, d.window = 1; d.window_right = INT64_MIN)
FORWARD(OPTION, "window_right counts only with window", valid, d.window_right = 1)
FORWARD(ALLOC, "workspace could not be allocated: bytes needed: *", valid, d.allocator = no_memory)
FORWARD(NULL, "workspace must be given where workspace_bytes is not 0",
    valid, d.workspace_bytes = size_of(&d)) /* it would allocate, silently */
FORWARD(NULL, "workspace must be given where workspace_bytes is not 0", valid, d.workspace_bytes = 1)
FORWARD(WORKSPACE, "workspace_bytes must be at least: *", valid, d.workspace = m.mask; d.workspace_bytes = 16)
FORWARD(WORKSPACE, "workspace_bytes must be at least: *",
    valid, d.workspace = m.mask; d.workspace_bytes = size_of(&d) - 1)
FORWARD(WORKSPACE, "workspace_bytes must be at least: *", valid, d.workspace = m.mask)

/* ---- attn_backward */
BACKWARD(OPTION, "accumulate must be ATTN_GRAD_x bits", valid, g.accumulate = ATTN_GRAD_ALL + 1)
BACKWARD(OPTION, "accumulate must be ATTN_GRAD_x bits", valid, g.accumulate = 0x80000000u)
BACKWARD(NULL, "allocator must have both functions or none", valid, d.allocator.allocate = allocate_nothing)
BACKWARD(NULL, "bias.data must not be NULL", valid, d.bias = attn_view_f32(0, 1, SK, 0, 0, 0))
BACKWARD(NULL, "bilinear must be given for ATTN_SCORE_BILINEAR", bilinear, CLEAR(d.bilinear))
BACKWARD(OPTION, "carry_in must be absent: gradients carry nothing", last_part, CLEAR(g.d_weights))
BACKWARD(OPTION, "carry_out must be absent: gradients carry nothing",
    last_part, CLEAR(g.d_weights); CLEAR(d.carry_in); d.carry_out = attn_out_bhsd(m.weights, B, H, SQ, DV + 2);
        d.k.size[2] = d.v.size[2] = g.dk.size[2] = g.dv.size[2] = 0)
BACKWARD(NULL, "d_out must be given, or d_weights or d_lse: the gradient of the loss with respect to a result",
    valid, nothing_above(&g))
BACKWARD(OPTION, "d_out must be absent where v is", valid, CLEAR(d.v); CLEAR(g.dv); CLEAR(d.out))
BACKWARD(OVERLAP, "d_scale must not overlap an input", valid, d.key_lengths = ints(1, B, 0); g.d_scale.data = m.ints)
BACKWARD(OVERLAP, "d_scale must not overlap an input",
    valid, d.query_lengths = ints(1, B, 0); g.d_scale.data = m.ints + 1)
BACKWARD(OVERLAP, "d_scale must not overlap an input",
    valid, d.align = ATTN_ALIGN_POSITIONS; d.positions = ints(2, B, SQ); g.d_scale.data = m.ints + B * SQ - 1)
BACKWARD(OPTION, "d_sink must be absent where key_origin is not 0",
    everything, d.key_origin = ATTN_PART_KEYS; d.align = ATTN_ALIGN_TOP_LEFT; CLEAR(g.d_weights))
BACKWARD(OPTION, "d_weights must be absent where key_origin is not 0", valid, d.key_origin = ATTN_PART_KEYS)
BACKWARD(SIZE, "d_weights.size[0] must equal the number of starts: 2, is 1", padded, g.d_weights.size[0] = 1)
BACKWARD(SIZE, "dk.size[2] must equal k.size[2]: 5, is 4",
    padded, g.dk = attn_out_bhsd(m.gradients[1], B, HKV, SK - 1, D))
BACKWARD(NULL, "dq must be given, or another gradient that is to be computed", valid, no_gradient(&g))
BACKWARD(RANGE, "dropout must be within 0..1", valid, d.dropout = 2)
BACKWARD(OPTION, "dv must be absent where what it belongs to is", given, CLEAR(d.v); CLEAR(g.d_out); CLEAR(d.out))
BACKWARD(OPTION, "isa must be one of attn_isa", valid, d.isa = 99)
BACKWARD(NULL, "k.data must not be NULL", valid, d.k.data = 0)
BACKWARD(SIZE, "k.size[3] must equal q.size[3]: 4, is 3", valid, d.k.size[3] = D - 1)
BACKWARD(TYPE, "k.type must not be ATTN_I8: it has no gradient", valid, store_codes(&d)) /* codes have no gradient */
BACKWARD(RANGE, "key_lengths must be at most the size of its axis: 5, is 6 at [1]",
    valid, d.key_lengths = ints(1, B, 0); m.ints[1] = SK + 1)
BACKWARD(NULL, "out must be given: the forward's result is read", valid, CLEAR(d.out))
BACKWARD(NULL, "out.data must not be NULL", valid, d.out.data = 0)
BACKWARD(SIZE, "out.size[2] must equal q.size[2]: 3, is 2", valid, d.out.size[2] = SQ - 1)
BACKWARD(OPTION, "page_table must be absent: pages have no gradients",
    paged, CLEAR(g); g.d_out = floats(4, B, H, SQ, DV); g.dq = attn_out_bhsd(m.gradients[0], B, H, SQ, D))
BACKWARD(RANGE, "parallel.workers must not be negative", valid, d.parallel.workers = -1)
BACKWARD(NULL, "q must be given", valid, CLEAR(d.q))
BACKWARD(OPTION, "reserved must be 0", valid, g.reserved = 1)
BACKWARD(OPTION, "score must be one of attn_score", valid, d.score = ATTN_SCORE_COUNT)
BACKWARD(NULL, "stats must be given, of all keys, where key_origin is not 0",
    valid, d.key_origin = ATTN_PART_KEYS; CLEAR(d.stats))
BACKWARD(NULL, "stats.data must not be NULL", valid, d.stats.data = 0)
BACKWARD(SIZE, "stats.size[3] must be: 2, is 1", valid, d.stats.size[3] = 1)
BACKWARD(NULL, "w_v must be given for ATTN_SCORE_ADDITIVE", additive, CLEAR(d.w_v))
BACKWARD(ALLOC, "workspace could not be allocated: bytes needed: *", valid, d.allocator = no_memory)
BACKWARD(WORKSPACE, "workspace_bytes must be at least: *", valid, d.workspace = m.mask; d.workspace_bytes = 16)
BACKWARD(WORKSPACE, "workspace_bytes must be at least: *",
    valid, d.workspace = m.mask; d.workspace_bytes = size_of_backward(&d, &g) - 1)

/* ---- attn_mha */
MHA(NULL, "b_key.data must not be NULL", h.b_key = attn_view_f32(0, 1, 4, 0, 0, 0))
MHA(RANK, "b_query.rank must be that of [H*D]: 1, is 2", h.b_query = floats(2, 1, 4, 0, 0))
MHA(SIZE, "b_query.size[0] must equal w_query.size[0]: 4, is 5", h.b_query = floats(1, 5, 0, 0, 0))
MHA(OPTION, "b_result must be absent where w_result is",
    h.b_result = floats(1, 6, 0, 0, 0); CLEAR(h.w_result); h.out = attn_out_f32(m.weights, 3, B, SQ, 6, 0))
MHA(SIZE, "b_result.size[0] must equal w_result.size[0]: 5, is 6", h.b_result = floats(1, 6, 0, 0, 0))
MHA(RANGE, "heads must be at least 1", h.heads = 0)
MHA(RANGE, "heads must be at least 1", h.heads = -2)
MHA(RANGE, "heads_kv must divide heads: -1 does not divide 2", h.heads_kv = -1)
MHA(RANGE, "heads_kv must divide heads: 3 does not divide 2", h.heads_kv = 3)
MHA(SIZE, "key.size[0] must equal query.size[0]: 2, is 1", h.key.size[0] = 1)
MHA(TYPE, "key.type must be " FLOATS ", is ATTN_F64", h.key.type = ATTN_F64)
MHA(NULL, "key_starts must be given where query is packed and is key, too",
    CLEAR(seq); CLEAR(h.key); CLEAR(h.value); h.query.size[0] = h.out.size[0] = 1;
    h.w_key.size[1] = h.w_key.stride[0] = h.w_value.size[1] = h.w_value.stride[0] = h.query.size[2];
    options.query_starts = options.query_lengths = seq_ints(seq.query_starts))
MHA(OVERLAP, "lse must not overlap an input", options.lse = attn_out_f32(m.small, 3, B, 2, SQ, 0))
MHA(OVERLAP, "lse must not overlap an input", options.lse = attn_out_f32(m.v, 3, B, 2, SQ, 0))
MHA(SIZE, "mask.size[0] " BROADCAST ": 5, is 6", options.mask = mask(1, SK + 1, 0, 0, 0))
MHA(NULL, "out must be given", CLEAR(h.out))
MHA(OVERLAP, "out must not overlap an input", h.out.data = m.q)
MHA(OVERLAP, "out must not overlap an input", h.out.data = m.k)
MHA(OVERLAP, "out must not overlap an input", h.out.data = m.v)
MHA(OVERLAP, "out must not overlap an input", h.out.data = m.small)
MHA(OVERLAP, "out must not overlap an input", h.b_key = attn_view_f32(m.weights, 1, 4, 0, 0, 0))
MHA(OVERLAP, "out must not overlap an input", options.mask = attn_view_u8((uint8_t *)m.weights, 1, SK, 0, 0, 0))
MHA(OVERLAP, "out must not overlap another output", options.weights = attn_out_f32(m.weights, 4, B, 2, SQ, SK))
MHA(NULL, "out.data must not be NULL", h.out.data = 0)
MHA(SIZE, "out.size[1] must equal query.size[1]: 3, is 5", h.out = attn_out_f32(m.weights, 3, B, SK, 5, 0))
MHA(SIZE, "out.size[2] must equal w_result.size[0]: 5, is 6", h.out = attn_out_f32(m.weights, 3, B, SQ, 6, 0))
MHA(STRIDE, "out.stride " OVERLAPS_ITSELF, h.out.stride[1] = 1)
MHA(OPTION, "page_table must be absent where no k and v are given: it says where their rows lie",
    CLEAR(seq); options.page_table = attn_view_i32(seq.table, 2, B, 2, 0, 0))
MHA(NULL, "query must be given", CLEAR(h.query))
MHA(OVERFLOW, "query " TOO_MANY, h.query.size[1] = (int64_t)1 << 62)
MHA(NULL, "query.data must not be NULL", h.query.data = 0)
MHA(NULL, "saved must be given where saved_bytes is not 0", h.saved_bytes = 8)
MHA(OPTION, "saved must be NULL where keys come in parts: they have no gradients",
    h.saved = never_filled; h.saved_bytes = sizeof never_filled; options.key_origin = ATTN_PART_KEYS)
MHA(WORKSPACE, "saved_bytes must be at least: *", h.saved = never_filled)
MHA(WORKSPACE, "saved_bytes must be at least: *", h.saved = never_filled; h.saved_bytes = size_of_saved(&h) - 1)
MHA(OPTION, "score must be one of attn_score", options.score = 99)
MHA(OPTION, "stats must be absent where saved is given",
    options.stats = attn_out_f32(m.stats, 4, B, 2, SQ, 2); h.saved = never_filled; h.saved_bytes = sizeof never_filled)
MHA(RANK, "value.rank must be that of [B,Sk,Ev]: 3, is 2", h.value.rank = 2)
MHA(SIZE, "value.size[1] must equal key.size[1]: 5, is 4", h.value.size[1] = SK - 1)
MHA(NULL, "w_key must be given", CLEAR(h.w_key))
MHA(RANK, "w_key.rank must be that of [Hkv*D,Ek]: 2, is 3", h.w_key.rank = 3)
MHA(SIZE, "w_key.size[0] must equal heads_kv * w_query.size[0] / heads: 4, is 2", h.w_key.size[0] = 2)
MHA(SIZE, "w_key.size[1] must equal key.size[2]: 4, is 3", h.w_key.size[1] = 3)
MHA(NULL, "w_query must be given", CLEAR(h.w_query))
MHA(SIZE, "w_query.size[0] must be a multiple of the number of heads: 2, is 3", h.w_query.size[0] = 3)
MHA(SIZE, "w_query.size[1] must equal query.size[2]: 4, is 3", h.w_query.size[1] = 3)
MHA(TYPE, "w_query.type must be " FLOATS ", is ATTN_I8", h.w_query.type = ATTN_I8)
MHA(NULL, "w_result.data must not be NULL", h.w_result.data = 0)
MHA(RANK, "w_result.rank must be that of [Eo,H*Dv]: 2, is 1", h.w_result.rank = 1)
MHA(SIZE, "w_result.size[1] must equal heads * w_value.size[0] / heads_kv: 6, is 5", h.w_result.size[1] = 5)
MHA(NULL, "w_value must be given", CLEAR(h.w_value))
MHA(NULL, "w_value.data must not be NULL", h.w_value.data = 0)
MHA(SIZE, "w_value.size[0] must be a multiple of the number of heads: 2, is 5", h.w_value.size[0] = 5)
MHA(SIZE, "w_value.size[1] must equal value.size[2]: 3, is 2", h.w_value.size[1] = 2)
MHA(OVERLAP, "weights must not overlap an input", options.weights = attn_out_f32(m.q, 4, B, 2, SQ, SK))
MHA(WORKSPACE, "workspace_bytes must be at least: *", options.workspace = m.mask; options.workspace_bytes = 8)

/* ---- attn_mha_backward */
MHA_BACKWARD(OPTION, "accumulate must be bits 0 to 10", hg.accumulate = 1u << 11)
MHA_BACKWARD(NULL, "d_out must be given", CLEAR(hg.d_out))
MHA_BACKWARD(NULL, "d_out.data must not be NULL", hg.d_out.data = 0)
MHA_BACKWARD(RANK, "d_out.rank must be that of [B,Sq,Eo]: 3, is 2", hg.d_out = floats(2, SQ, 5, 0, 0))
MHA_BACKWARD(SIZE, "d_out.size[0] must equal query.size[0]: 2, is 1", hg.d_out.size[0] = 1)
MHA_BACKWARD(SIZE, "d_out.size[1] must equal query.size[1]: 3, is 2", hg.d_out.size[1] = SQ - 1)
MHA_BACKWARD(SIZE, "d_out.size[2] must equal w_result.size[0]: 5, is 4", hg.d_out.size[2] = 4)
MHA_BACKWARD(TYPE, "d_out.type must be " FLOATS ", is ATTN_U8", hg.d_out.type = ATTN_U8)
MHA_BACKWARD(OVERLAP, "d_scale must not overlap an input", hg.attention = inner_scale(m.q))
MHA_BACKWARD(OVERLAP, "d_scale must not overlap an input", hg.attention = inner_scale(m.k))
MHA_BACKWARD(OVERLAP, "d_scale must not overlap an input", hg.attention = inner_scale(m.v))
MHA_BACKWARD(OVERLAP, "d_scale must not overlap an input", hg.attention = inner_scale(m.small))
MHA_BACKWARD(OVERLAP, "d_scale must not overlap an input", hg.attention = inner_scale(m.scores))
MHA_BACKWARD(SIZE, "db_key.size[0] must equal b_key.size[0]: 4, is 3",
    h.b_key = floats(1, 4, 0, 0, 0); hg.db_key = attn_out_f32(m.gradients[7], 1, 3, 0, 0, 0))
MHA_BACKWARD(OPTION, "db_query must be absent where what it belongs to is",
    hg.db_query = attn_out_f32(m.gradients[7], 1, 4, 0, 0, 0))
MHA_BACKWARD(OPTION, "db_result must be absent where what it belongs to is",
    hg.db_result = attn_out_f32(m.gradients[7], 1, 5, 0, 0, 0))
MHA_BACKWARD(OVERLAP, "dkey must not overlap an input", hg.attention = inner_lse(m.gradients[1]))
MHA_BACKWARD(NULL, "dquery must be given, or another result",
    memset(&hg.dquery, 0, offsetof(attn_mha_grad, attention) - offsetof(attn_mha_grad, dquery)))
MHA_BACKWARD(OVERLAP, "dquery must not overlap another output",
    hg.attention = inner_scale(m.gradients[0])) /* of the attention itself, too */
MHA_BACKWARD(OPTION, "dvalue must be absent where what it belongs to is",
    CLEAR(h.value); h.w_value = attn_view_f32(m.small, 2, 6, 4, 0, 0);
        hg.dw_value = shaped_like(&h.w_value, m.gradients[5]))
MHA_BACKWARD(RANGE, "heads must be at least 1", h.heads = 0)
MHA_BACKWARD(OPTION, "key_origin must be 0: gradients are those of all keys",
    options.stats = attn_out_f32(m.stats, 4, B, 2, SQ, 2); options.key_origin = ATTN_PART_KEYS)
MHA_BACKWARD(RANGE, "key_starts must be at least the end of the entry before it: 2, is 1 at [1]",
    CLEAR(seq); h.key.size[0] = h.value.size[0] = hg.dkey.size[0] = hg.dvalue.size[0] = 1; seq.key_starts[1] = 1;
    seq.key_lengths[0] = seq.key_lengths[1] = 2; options.key_starts = seq_ints(seq.key_starts);
    options.key_lengths = seq_ints(seq.key_lengths))
MHA_BACKWARD(NULL, "query must be given", CLEAR(h.query))
MHA_BACKWARD(OPTION, "reserved must be 0", hg.reserved = 1)
MHA_BACKWARD(NULL, "saved must be given where saved_bytes is not 0", h.saved_bytes = 8)
MHA_BACKWARD(OPTION, "saved must be what attn_mha left there, with these sizes, types and options",
    h.saved = never_filled; h.saved_bytes = sizeof never_filled)
MHA_BACKWARD(WORKSPACE, "saved_bytes must be at least: *", h.saved = never_filled; h.saved_bytes = 1)
MHA_BACKWARD(OPTION, "score must be one of attn_score", options.score = 99)
MHA_BACKWARD(NULL, "w_key.data must not be NULL", h.w_key.data = 0)
MHA_BACKWARD(WORKSPACE, "workspace_bytes must be at least: *", options.workspace = m.mask; options.workspace_bytes = 8)

/* ---- other functions, and arguments that are missing */
PIECE(NULL, "a must be given", attn_bmm(none, x, o, 0, err))
PIECE(NULL, "a must be given", attn_bmm_backward(none, b, ab, da, db, 0, 0, err))
PIECE(NULL, "a must be given", attn_bmm_backward_workspace_size(none, b, ab, da, db, 0, &size, err))
PIECE(RANK, "a.rank " MATRIX ": 2, is 1", attn_bmm(floats(1, SK, 0, 0, 0), x, o, 0, err))
PIECE(RANK, "a.rank " MATRIX ": 2, is 1", attn_bmm_backward(floats(1, SK, 0, 0, 0), b, ab, da, db, 0, 0, err))
PIECE_EACH(no_matrix, RANK, "a.rank " MATRIX ": 2, is %", a.rank = n, attn_bmm_backward(a, b, ab, da, db, 0, 0, err))
PIECE(RANK, "a.rank " MATRIX ": 4, is 5", a.rank = 5, attn_bmm_backward(a, b, ab, da, db, 0, 0, err))
PIECE(TYPE, "a.type must be " FLOATS ", is ATTN_U8", attn_bmm_backward(mask(3, B, SQ, SK, 0), b, ab, da, db, 0, 0, err))
PIECE(OPTION, "accumulate must be 1 for da, 2 for db, or both", attn_bmm_backward(a, b, ab, da, db, 4, 0, err))
PIECE(NULL, "b must be given", attn_bmm(x, none, o, 0, err))
PIECE(OVERFLOW, "b " TOO_MANY,
    attn_bmm(floats(2, 2, 2, 0, 0), floats(2, 2, (int64_t)1 << 61, 0, 0), attn_out_f32(m.weights, 2, 2, 2, 0, 0), 0,
        err))
PIECE(NULL, "b must be given", attn_bmm_backward(a, none, ab, da, db, 0, 0, err))
PIECE_EACH(no_matrix, RANK, "b.rank " MATRIX ": 2, is %", b.rank = n, attn_bmm_backward(a, b, ab, da, db, 0, 0, err))
PIECE(RANK, "b.rank " MATRIX ": 4, is 5", b.rank = 5, attn_bmm_backward(a, b, ab, da, db, 0, 0, err))
PIECE(SIZE, "b.size[0] must equal a.size[1]: 5, is 3", attn_bmm(x, x, o, 0, err))
PIECE(SIZE, "b.size[0] must broadcast with a: be 1 or: 2, is 3",
    attn_bmm(floats(3, 2, 2, 2, 0), floats(3, 3, 2, 2, 0), attn_out_f32(m.weights, 3, 2, 2, 2, 0), 0, err))
PIECE(SIZE, "b.size[0] must equal a.size[1]: 5, is 3", attn_bmm_workspace_size(x, x, o, 0, &size, err))
PIECE(SIZE, "b.size[0] must equal a.size[2]: 5, is 4",
    attn_bmm_backward(a, floats(2, SK - 1, DV, 0, 0), ab, da, db, 0, 0, err))
PIECE(SIZE, "b.size[0] must broadcast with a: be 1 or: 2, is 3",
    attn_bmm_backward(a4, floats(4, 3, 1, 2, 2), a4, da4, nowhere, 0, 0, err))
PIECE(SIZE, "b.size[0] must broadcast with a: be 1 or: 3, is 2",
    attn_bmm_backward(a4, floats(3, 2, 2, 2, 0), a4, da4, nowhere, 0, 0, err))
PIECE(SIZE, "b.size[1] must broadcast with a: be 1 or: 3, is 2",
    attn_bmm_backward(a4, floats(4, 1, 2, 2, 2), a4, da4, nowhere, 0, 0, err))
PIECE(TYPE, "b.type must be ATTN_F32, ATTN_F16, ATTN_BF16 or ATTN_I8, is ATTN_U8",
    xt.type = ATTN_U8, attn_bmm(x, xt, square_out, 0, err))
PIECE(TYPE, "b.type must be " FLOATS ", is ATTN_I8", b.type = ATTN_I8, attn_bmm_backward(a, b, ab, da, db, 0, 0, err))
PIECE(SIZE, "bias.size[1] " BROADCAST ": 5, is 4",
    options.bias = floats(2, SQ, SK - 1, 0, 0), attn_softmax_backward(x3, x3, dx, &options, err))
PIECE(SIZE, "bias.size[2] " BROADCAST ": 5, is 4",
    options.bias = floats(3, B, SQ, SK - 1, 0), attn_softmax_backward(x3, x3, dx, &options, err))
PIECE(NULL, "bilinear must be given for ATTN_SCORE_BILINEAR",
    options.score = ATTN_SCORE_BILINEAR, attn_scores(q, k, d.scores, &options, err))
PIECE(NULL, "blocks must not be NULL", codes.size[3] = 32, scale.size[3] = 1, attn_unpack_q8_0(0, codes, scale, err))
PIECE(NULL, "bytes must not be NULL", attn_softmax_workspace_size(x, o, 0, 0, err))
PIECE(NULL, "bytes must not be NULL", attn_bmm_workspace_size(x, xt, square_out, 0, 0, err))
PIECE(NULL, "bytes must not be NULL", attn_softmax_backward_workspace_size(x3, x3, dx, 0, 0, err))
PIECE(NULL, "bytes must not be NULL", attn_bmm_backward_workspace_size(a, b, ab, da, db, 0, 0, err))
PIECE(NULL, "bytes must not be NULL", attn_mha_backward_workspace_size(&h, &hg, 0, err))
PIECE(NULL, "bytes must not be NULL", attn_workspace_size(&d, 0, err))
PIECE(NULL, "bytes must not be NULL", attn_backward_workspace_size(&d, &g, 0, err))
PIECE(NULL, "bytes must not be NULL", attn_mha_workspace_size(&h, 0, err))
PIECE(NULL, "bytes must not be NULL", attn_mha_saved_size(&h, 0, err))
PIECE(SIZE, "codes.size[3] must equal from.size[3]: 40, is 39",
    codes.size[3] = 39, attn_quantize(from, codes, scale, err))
PIECE(SIZE, "codes.size[3] must be a multiple: 32, is 40", attn_unpack_q8_0(m.small, codes, scale, err))
PIECE(TYPE, "codes.type must be ATTN_I8, is ATTN_U8", codes.type = ATTN_U8, attn_quantize(from, codes, scale, err))
PIECE(NULL, "d_out must be given", attn_softmax_backward(x3, none, dx, 0, err))
PIECE(NULL, "d_out must be given", attn_softmax_backward_workspace_size(x3, none, dx, 0, &size, err))
PIECE(NULL, "d_out must be given", attn_bmm_backward(a, b, none, da, db, 0, 0, err))
PIECE(NULL, "d_out.data must not be NULL", attn_softmax_backward(x3, attn_view_f32(0, 3, B, SQ, SK, 0), dx, 0, err))
PIECE(NULL, "d_out.data must not be NULL",
    attn_bmm_backward(a, b, attn_view_f32(0, 3, B, SQ, DV, 0), da, db, 0, 0, err))
PIECE(RANK, "d_out.rank must equal x.rank: 3, is 2", attn_softmax_backward(x3, floats(2, SQ, SK, 0, 0), dx, 0, err))
PIECE(SIZE, "d_out.rank must have the broadcast batch of a and b: 2, is 1",
    attn_bmm_backward(a4, b4, floats(3, 3, 2, 2, 0), da4, nowhere, 0, 0, err))
PIECE(SIZE, "d_out.rank must have the broadcast batch of a and b: 2, is 1",
    attn_bmm_backward(a3, b4, a3, da3, nowhere, 0, 0, err))
PIECE_EACH(no_matrix, RANK, "d_out.rank " MATRIX ": 2, is %",
    ab.rank = n, attn_bmm_backward(a, b, ab, da, db, 0, 0, err))
PIECE(RANK, "d_out.rank " MATRIX ": 4, is 5", ab.rank = 5, attn_bmm_backward(a, b, ab, da, db, 0, 0, err))
PIECE(SIZE, "d_out.size[0] must equal a.size[0]: 2, is 1",
    attn_bmm_backward(a4, b4, floats(4, 1, 3, 2, 2), da4, nowhere, 0, 0, err))
PIECE(SIZE, "d_out.size[0] must equal a.size[0]: 3, is 2",
    attn_bmm_backward(a3, floats(3, 1, 2, 2, 0), floats(3, 2, 2, 2, 0), da3, nowhere, 0, 0, err))
PIECE(SIZE, "d_out.size[1] must equal x.size[1]: 3, is 2",
    attn_softmax_backward(x3, floats(3, B, SQ - 1, SK, 0), dx, 0, err))
PIECE(SIZE, "d_out.size[1] must equal a.size[1]: 3, is 2",
    attn_bmm_backward(a, b, floats(3, B, SQ - 1, DV, 0), da, db, 0, 0, err))
PIECE(SIZE, "d_out.size[1] must equal a.size[1]: 3, is 1",
    attn_bmm_backward(a4, b4, floats(4, 2, 1, 2, 2), da4, nowhere, 0, 0, err))
PIECE(SIZE, "d_out.size[2] must equal x.size[2]: 5, is 4",
    attn_softmax_backward(x3, floats(3, B, SQ, SK - 1, 0), dx, 0, err))
PIECE(SIZE, "d_out.size[2] must equal b.size[1]: 3, is 2",
    attn_bmm_backward(a, b, floats(3, B, SQ, DV - 1, 0), da, db, 0, 0, err))
PIECE(TYPE, "d_out.type must be " FLOATS ", is ATTN_U8", attn_softmax_backward(x3, mask(3, B, SQ, SK, 0), dx, 0, err))
PIECE(TYPE, "d_out.type must be " FLOATS ", is ATTN_U8",
    attn_bmm_backward(a, b, mask(3, B, SQ, DV, 0), da, db, 0, 0, err))
PIECE(NULL, "da must be given, or db", attn_bmm_backward(a, b, ab, nowhere, nowhere, 0, 0, err))
PIECE(OVERLAP, "da must not overlap an input",
    attn_bmm_backward(a, b, ab, attn_out_f32(m.scores, 3, B, SQ, SK, 0), db, 0, 0, err))
PIECE(OVERLAP, "da must not overlap another output",
    attn_bmm_backward(a, b, ab, da, attn_out_f32(m.gradients[0], 2, SK, DV, 0, 0), 0, 0, err))
PIECE(NULL, "da.data must not be NULL", attn_bmm_backward(a, b, ab, attn_out_f32(0, 3, B, SQ, SK, 0), db, 0, 0, err))
PIECE(RANK, "da.rank must be that of a: 3, is 2",
    attn_bmm_backward(a, b, ab, attn_out_f32(m.gradients[0], 2, SQ, SK, 0, 0), db, 0, 0, err))
PIECE_EACH(no_matrix, RANK, "da.rank must be that of a: 2, is %",
    da.rank = n, attn_bmm_backward(a, b, ab, da, db, 0, 0, err))
PIECE(RANK, "da.rank must be that of a: 4, is 5", da.rank = 5, attn_bmm_backward(a, b, ab, da, db, 0, 0, err))
PIECE(SIZE, "da.size[2] must equal a.size[2]: 5, is 4",
    attn_bmm_backward(a, b, ab, attn_out_f32(m.gradients[0], 3, B, SQ, SK - 1, 0), db, 0, 0, err))
PIECE(STRIDE, "da.stride " OVERLAPS_ITSELF, da.stride[1] = 0, attn_bmm_backward(a, b, ab, da, db, 0, 0, err))
PIECE(RANK, "db.rank must be that of b: 2, is 3",
    attn_bmm_backward(a, b, ab, da, attn_out_f32(m.gradients[1], 3, 1, SK, DV, 0), 0, 0, err))
PIECE_EACH(no_matrix, RANK, "db.rank must be that of b: 2, is %",
    db.rank = n, attn_bmm_backward(a, b, ab, da, db, 0, 0, err))
PIECE(RANK, "db.rank must be that of b: 4, is 5", db.rank = 5, attn_bmm_backward(a, b, ab, da, db, 0, 0, err))
PIECE(SIZE, "db.size[0] must equal b.size[0]: 5, is 4",
    attn_bmm_backward(a, b, ab, da, attn_out_f32(m.gradients[1], 2, SK - 1, DV, 0, 0), 0, 0, err))
PIECE(NULL, "desc must not be NULL", attn_mha(0, err))
PIECE(NULL, "desc must not be NULL", attn_mha_workspace_size(0, &size, err))
PIECE(NULL, "desc must not be NULL", attn_mha_saved_size(0, &size, err))
PIECE(NULL, "desc must not be NULL", attn_mha_backward(0, &hg, err))
PIECE(NULL, "desc must not be NULL", attn_mha_backward_workspace_size(0, &hg, &size, err))
PIECE(NULL, "desc must not be NULL", attn_forward(0, err))
PIECE(NULL, "desc must not be NULL", attn_plan_forward(0, &plan, err))
PIECE(NULL, "desc must not be NULL", attn_workspace_size(0, &size, err))
PIECE(OPTION, "dropout counts only with weights_after_dropout",
    options.dropout = 0.5f, attn_softmax(x, o, &options, err))
PIECE(OPTION, "dropout counts only with weights_after_dropout",
    options.dropout = 1, attn_softmax_backward(x3, x3, dx, &options, err))
PIECE(RANGE, "dropout must be within 0..1", options.dropout = 2, attn_softmax(x, o, &options, err))
PIECE(RANGE, "dropout must be within 0..1", options.dropout = 2, attn_dropout_mask(bytes, &options, err))
PIECE(RANGE, "dropout must be within 0..1", options.dropout = NAN, attn_dropout_mask(bytes, &options, err))
PIECE(RANGE, "dropout must be within 0..1", options.dropout = 2, attn_softmax_backward(x3, x3, dx, &options, err))
PIECE(NULL, "dx must be given", attn_softmax_backward(x3, x3, nowhere, 0, err))
PIECE(OVERLAP, "dx must not overlap an input",
    attn_softmax_backward(x3, x3, attn_out_f32(m.scores, 3, B, SQ, SK, 0), 0, err))
PIECE(NULL, "dx.data must not be NULL", attn_softmax_backward(x3, x3, attn_out_f32(0, 3, B, SQ, SK, 0), 0, err))
PIECE(RANK, "dx.rank must equal x.rank: 3, is 2",
    attn_softmax_backward(x3, x3, attn_out_f32(m.gradients[0], 2, SQ, SK, 0, 0), 0, err))
PIECE(SIZE, "dx.size[2] must equal x.size[2]: 5, is 4",
    attn_softmax_backward(x3, x3, attn_out_f32(m.gradients[0], 3, B, SQ, SK - 1, 0), 0, err))
PIECE(STRIDE, "dx.stride " OVERLAPS_ITSELF, dx.stride[1] = 0, attn_softmax_backward(x3, x3, dx, 0, err))
PIECE(NULL, "forward must not be NULL", attn_backward(0, &g, err))
PIECE(NULL, "forward must not be NULL", attn_plan_backward(0, &g, &plan, err))
PIECE(NULL, "forward must not be NULL", attn_backward_workspace_size(0, &g, &size, err))
PIECE(NULL, "from must be given", CLEAR(from), attn_convert(from, to, err))
PIECE(NULL, "from.data must not be NULL", from.data = 0, attn_convert(from, to, err))
PIECE(RANK, "from.rank must be that of any shape: 1 to 4: 1, is 0", from.rank = 0, attn_convert(from, to, err))
PIECE(TYPE, "from.type must be a type of floats, is ATTN_U8", from.type = ATTN_U8, attn_convert(from, to, err))
PIECE(TYPE, "from.type must be " FLOATS ", is ATTN_F64", from.type = ATTN_F64, attn_quantize(from, codes, scale, err))
PIECE(NULL, "grad must not be NULL", attn_mha_backward(&h, 0, err))
PIECE(NULL, "grad must not be NULL", attn_backward(&d, 0, err))
PIECE(NULL, "grad must not be NULL", attn_plan_backward(&d, 0, &plan, err))
PIECE(NULL, "grad must not be NULL", attn_backward_workspace_size(&d, 0, &size, err))
PIECE(OPTION, "isa must be one of attn_isa", options.isa = 99, attn_bmm(x, xt, square_out, &options, err))
PIECE(OPTION, "isa must be one of attn_isa", options.isa = 99, attn_bmm_backward(a, b, ab, da, db, 0, &options, err))
PIECE(NULL, "k_scale must be given for ATTN_I8", xt.type = ATTN_I8, attn_bmm(x, xt, square_out, 0, err))
PIECE(NULL, "k_scale must be given for ATTN_I8",
    xt.type = ATTN_I8, attn_bmm_workspace_size(x, xt, square_out, 0, &size, err))
PIECE(OPTION, "k_scale counts for ATTN_I8 only",
    options.k_scale = floats(2, SQ, 1, 0, 0), attn_bmm(x, xt, square_out, &options, err))
PIECE(OPTION, "k_scale must be absent: codes have no gradient",
    options.k_scale = floats(2, DV, 1, 0, 0), attn_bmm_backward(a, b, ab, da, db, 0, &options, err))
PIECE(NULL, "k_scale.data must not be NULL",
    BMM_CODES, options.k_scale.data = 0, attn_bmm(x, xt, square_out, &options, err))
PIECE(RANK, "k_scale.rank " MATRIX ": 2, is 1",
    BMM_CODES, options.k_scale.rank = 1, attn_bmm(x, xt, square_out, &options, err))
PIECE(SIZE, "k_scale.size[0] must equal b.size[1]: 3, is 5",
    BMM_CODES, options.k_scale = floats(2, SK, 1, 0, 0), attn_bmm(x, xt, square_out, &options, err))
PIECE(SIZE, "k_scale.size[0] must be that of b's batch: 1, is 2",
    BMM_CODES, options.k_scale = floats(3, 2, SQ, 1, 0), attn_bmm(x, xt, square_out, &options, err))
PIECE(SIZE, "k_scale.size[1] must be that of b's batch: 1, is 3",
    b4.type = ATTN_I8, options.k_scale = floats(4, 2, 3, 2, 1), attn_bmm(a4, b4, da4, &options, err))
PIECE(SIZE, "k_scale.size[1] must be 1, or one per 32 numbers of a row: 1, is 2",
    BMM_CODES, options.k_scale = floats(2, SQ, 2, 0, 0), attn_bmm(x, xt, square_out, &options, err))
PIECE(TYPE, "k_scale.type must be ATTN_F32 or ATTN_F16, is ATTN_BF16",
    BMM_CODES, options.k_scale.type = ATTN_BF16, attn_bmm(x, xt, square_out, &options, err))
PIECE(RANGE, "key_lengths must be at most the size of its axis: 5, is 6 at [0]",
    options.key_lengths = ints(1, 1, 0), m.ints[0] = SK + 1, attn_mask(bytes, &options, err))
PIECE(SIZE, "key_lengths.size[0] must equal mask.size[0]: 1, is 2",
    options.key_lengths = ints(1, B, 0), attn_mask(bytes, &options, err))
PIECE(SIZE, "key_lengths.size[0] must equal mask.size[0]: 2, is 1",
    CLEAR(seq), options.query_starts = seq_ints(seq.query_starts), /* of packed queries, which pictures are not */
        options.key_lengths = attn_view_i32(seq.per_query, 2, 1, SQ, 0, 0),
        attn_mask(attn_out_u8((uint8_t *)m.raw, 4, B, 1, SQ, SK), &options, err))
PIECE(SIZE, "lse.size[2] must equal out_a.size[2]: 3, is 1",
    attn_merge(part, lse, part, lse, merged, attn_out_f32(m.lse, 3, B, H, 1, 0), err))
PIECE(NULL, "lse_a must be given", attn_merge(part, none, part, lse, merged, nowhere, err))
PIECE(RANK, "lse_a.rank " OF_HEADS("Sq") ": 3, is 4", attn_merge(part, part, part, lse, merged, nowhere, err))
PIECE(NULL, "lse_b must be given", attn_merge(part, lse, part, none, merged, nowhere, err))
PIECE(SIZE, "lse_b.size[2] must equal out_a.size[2]: 3, is 2",
    attn_merge(part, lse, part, floats(3, B, H, SQ - 1, 0), merged, nowhere, err))
PIECE(NULL, "mask must be given", attn_mask(nowhere, 0, err))
PIECE(OVERLAP, "mask must not overlap an input",
    options.mask = attn_view_u8((uint8_t *)m.raw, 4, 1, 1, SQ, SK), attn_mask(bytes, &options, err))
PIECE(NULL, "mask must be given", attn_dropout_mask(nowhere, &options, err))
PIECE(NULL, "mask.data must not be NULL", attn_mask(attn_out_u8(0, 4, 1, 1, SQ, SK), 0, err))
PIECE(RANK, "mask.rank " OF_HEADS("Sq,Sk") ": 4, is 2",
    attn_mask(attn_out_u8((uint8_t *)m.raw, 2, SQ, SK, 0, 0), 0, err))
PIECE(SIZE, "mask.size[1] " BROADCAST ": 5, is 4",
    options.mask = mask(2, SQ, SK - 1, 0, 0), attn_softmax_backward(x3, x3, dx, &options, err))
PIECE(SIZE, "mask.size[2] " BROADCAST ": 5, is 4",
    options.mask = mask(3, B, SQ, SK - 1, 0), attn_softmax_backward(x3, x3, dx, &options, err))
PIECE(STRIDE, "mask.stride " OVERLAPS_ITSELF, bytes.stride[2] = 1, attn_mask(bytes, &options, err))
PIECE(STRIDE, "mask.stride " OVERLAPS_ITSELF, bytes.stride[2] = 1, attn_dropout_mask(bytes, &options, err))
PIECE(TYPE, "mask.type must be ATTN_U8, is ATTN_F32", attn_mask(attn_out_f32(m.raw, 4, 1, 1, SQ, SK), 0, err))
PIECE(NULL, "out must be given", attn_softmax(x, nowhere, 0, err))
PIECE(OVERLAP, "out must not overlap an input", attn_softmax(x, attn_out_f32(m.scores + 1, 2, SQ, SK, 0, 0), 0, err))
PIECE(NULL, "out must be given", attn_bmm(x, xt, nowhere, 0, err))
PIECE(OVERLAP, "out must not overlap an input",
    attn_bmm(floats(2, 2, 2, 0, 0), floats(2, 2, 2, 0, 0), attn_out_f32(m.scores + 3, 2, 2, 2, 0, 0), 0, err))
PIECE(OVERLAP, "out must not overlap an input",
    BMM_CODES, options.k_scale.data = m.weights, attn_bmm(x, xt, square_out, &options, err))
PIECE(NULL, "out must be given", attn_merge(part, lse, part, lse, nowhere, nowhere, err))
PIECE(OVERLAP, "out must not overlap an input",
    attn_merge(part, lse, part, lse, attn_out_bhsd(m.scores, B, H, SQ, DV), nowhere, err))
PIECE(OVERLAP, "out must not overlap another output",
    attn_merge(part, lse, part, lse, merged, attn_out_f32(m.out, 3, B, H, SQ, 0), err))
PIECE(RANK, "out.rank must equal x.rank: 2, is 3", attn_softmax(x, attn_out_f32(m.weights, 3, 1, SQ, SK, 0), 0, err))
PIECE(SIZE, "out.size[0] must equal x.size[0]: 3, is 2",
    attn_softmax(x, attn_out_f32(m.weights, 2, SQ - 1, SK, 0, 0), 0, err))
PIECE(SIZE, "out.size[0] must equal a.size[0]: 5, is 3", attn_bmm(xt, x, o, 0, err))
PIECE(SIZE, "out.size[0] must equal a.size[0]: 2, is 3",
    attn_bmm(floats(3, 2, 2, 2, 0), floats(2, 2, 2, 0, 0), attn_out_f32(m.weights, 3, 3, 2, 2, 0), 0, err))
PIECE(SIZE, "out.size[1] must equal x.size[1]: 5, is 4",
    attn_softmax(x, attn_out_f32(m.weights, 2, SQ, SK - 1, 0, 0), 0, err))
PIECE(SIZE, "out.size[1] must equal b.size[1]: 3, is 5", attn_bmm(x, xt, o, 0, err))
PIECE(NULL, "out_a must be given", attn_merge(none, lse, part, lse, merged, nowhere, err))
PIECE(RANK, "out_a.rank " OF_HEADS("Sq,Dv") ": 4, is 3", attn_merge(lse, lse, part, lse, merged, nowhere, err))
PIECE(NULL, "out_b must be given", attn_merge(part, lse, none, lse, merged, nowhere, err))
PIECE(SIZE, "out_b.size[3] must equal out_a.size[3]: 3, is 2",
    attn_merge(part, lse, floats(4, B, H, SQ, DV - 1), lse, merged, nowhere, err))
PIECE(OPTION, "page_table must be absent where no k and v are given: it says where their rows lie",
    CLEAR(seq), options.page_table = attn_view_i32(seq.table, 2, 1, 2, 0, 0), attn_softmax(x, o, &options, err))
PIECE(RANGE, "parallel.workers must not be negative",
    options.parallel.workers = -1, attn_mask(bytes, &options, err))
PIECE(RANGE, "parallel.workers must not be negative",
    options.parallel.workers = -1, attn_dropout_mask(bytes, &options, err))
PIECE(RANGE, "parallel.workers must not be negative",
    options.parallel.workers = -1, attn_merge_with(part, lse, part, lse, merged, nowhere, &options, err))
PIECE(RANGE, "parallel.workers must not be negative",
    options.parallel.workers = -1, attn_convert_with(from, to, &options, err))
PIECE(RANGE, "parallel.workers must not be negative",
    options.parallel.workers = -1, attn_quantize_with(from, codes, scale, &options, err))
PIECE(RANGE, "parallel.workers must not be negative",
    options.parallel.workers = -1, attn_append(from, to, ints(1, 1, 0), &options, err))
PIECE(RANGE, "parallel.workers must not be negative", options.parallel.workers = -1,
    attn_rope_with(from, floats(2, 3, 20, 0, 0), floats(2, 3, 20, 0, 0), none, 0, to, &options, err))
PIECE(NULL, "plan must not be NULL", attn_plan_forward(&d, 0, err))
PIECE(NULL, "plan must not be NULL", attn_plan_backward(&d, &g, 0, err))
PIECE(NULL, "q must be given", attn_scores(none, k, d.scores, 0, err))
PIECE(SIZE, "scale.size[3] must be 1, or one per 32 numbers of a row: 2, is 3",
    attn_quantize(from, codes, attn_out_f32(m.lse, 4, 1, 2, 3, 3), err))
PIECE(SIZE, "scale.size[3] must be one per 32 numbers of a row: 1, is 2",
    codes.size[3] = 32, attn_unpack_q8_0(m.small, codes, scale, err))
PIECE(TYPE, "scale.type must be ATTN_F32 or ATTN_F16, is ATTN_BF16",
    scale.type = ATTN_BF16, attn_quantize(from, codes, scale, err))
PIECE(NULL, "scores must be given", attn_scores(q, k, nowhere, 0, err))
PIECE(SIZE, "scores.size[2] must equal q.size[2]: 3, is 5",
    attn_scores(q, k, attn_out_f32(m.raw, 4, B, H, SK, SQ), 0, err))
PIECE(OVERLAP, "to must not overlap an input", attn_convert(attn_view_of(to), to, err))
PIECE(SIZE, "to.size[0] must equal from.size[1]: 2, is 1", to.rank = 3, attn_convert(from, to, err))
PIECE(SIZE, "to.size[2] must equal from.size[2]: 3, is 2", to.size[2] = 2, attn_convert(from, to, err))
PIECE(STRIDE, "to.stride " OVERLAPS_ITSELF, to.stride[3] = 0, attn_convert(from, to, err))
PIECE(TYPE, "to.type must be a type of floats, is ATTN_I8", to.type = ATTN_I8, attn_convert(from, to, err))
PIECE(WORKSPACE, "workspace_bytes must be at least: *",
    options.workspace = m.mask, options.workspace_bytes = 1, attn_bmm(x, xt, square_out, &options, err))
PIECE(NULL, "x must be given", attn_softmax(none, o, 0, err))
PIECE(NULL, "x must be given", attn_softmax_backward(none, x3, dx, 0, err))
PIECE(NULL, "x.data must not be NULL", attn_softmax(attn_view_f32(0, 2, SQ, SK, 0, 0), o, 0, err))
PIECE(NULL, "x.data must not be NULL", attn_softmax_backward(attn_view_f32(0, 3, B, SQ, SK, 0), x3, dx, 0, err))
PIECE(TYPE, "x.type must be " FLOATS ", is ATTN_U8", attn_softmax(mask(2, SQ, SK, 0, 0), o, 0, err))
PIECE(TYPE, "x.type must be " FLOATS ", is ATTN_U8", attn_softmax_backward(mask(3, B, SQ, SK, 0), x3, dx, 0, err))

#undef FORWARD
#undef FORWARD_EACH
#undef BACKWARD
#undef MHA
#undef MHA_BACKWARD
#undef PIECE
#undef PIECE_EACH
// clang-format on
