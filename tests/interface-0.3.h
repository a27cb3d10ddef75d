/* interface-0.3.h - what version 0.3 declares, as a program has it that was built then: tests/old_caller.c. Made from
   attn.h by the preprocessor once; it stays as it is when attn.h grows. */
#include <stddef.h>
#include <stdint.h>

typedef enum attn_status {
    ATTN_OK,
    ATTN_ERR_NULL,
    ATTN_ERR_TYPE,
    ATTN_ERR_RANK,
    ATTN_ERR_SIZE,
    ATTN_ERR_STRIDE,
    ATTN_ERR_RANGE,
    ATTN_ERR_OPTION,
    ATTN_ERR_OVERFLOW,
    ATTN_ERR_OVERLAP,
    ATTN_ERR_WORKSPACE,
    ATTN_ERR_ALLOC,
    ATTN_ERR_ISA,
    ATTN_ERR_WRITE,
    ATTN_ERR_PLACE,
    ATTN_ERR_CUDA,
    ATTN_STATUS_COUNT
} attn_status;
typedef struct attn_error {
    int32_t status;
    const char *field;
    const char *rule;
    int64_t got, want;
    int32_t has_numbers;
    int32_t cuda;
    int64_t reserved[4];
} attn_error;
typedef enum attn_type {
    ATTN_F32 = 0,
    ATTN_F16,
    ATTN_BF16,
    ATTN_F64,
    ATTN_U8,
    ATTN_I32,
    ATTN_I64,
    ATTN_TYPE_COUNT
} attn_type;
typedef struct attn_view {
    const void *data;
    int64_t size[4];
    int64_t stride[4];
    int32_t type, rank;
} attn_view;
typedef struct attn_out {
    void *data;
    int64_t size[4], stride[4];
    int32_t type, rank;
} attn_out;
extern attn_view attn_view_f32(const float *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3);
extern attn_view attn_view_u8(const uint8_t *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3);
extern attn_view attn_view_i32(const int32_t *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3);
extern attn_view attn_view_i64(const int64_t *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3);
extern attn_out attn_out_f32(float *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3);
extern attn_out attn_out_u8(uint8_t *data, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3);
extern attn_view attn_view_bhsd(const float *data, int64_t b, int64_t h, int64_t s, int64_t d);
extern attn_view attn_view_bshd(const float *data, int64_t b, int64_t s, int64_t h, int64_t d);
extern attn_out attn_out_bhsd(float *data, int64_t b, int64_t h, int64_t s, int64_t d);
extern attn_out attn_out_bshd(float *data, int64_t b, int64_t s, int64_t h, int64_t d);
extern attn_view attn_view_qkv(const float *data, int which, int64_t b, int64_t s, int64_t h, int64_t d);
extern attn_view attn_view_rows(const float *data, int64_t b, int64_t s, int64_t h, int64_t d, int64_t row);
extern attn_out attn_out_rows(float *data, int64_t b, int64_t s, int64_t h, int64_t d, int64_t row);
extern attn_view attn_view_slice(attn_view v, int axis, int64_t first, int64_t count);
extern attn_out attn_out_slice(attn_out o, int axis, int64_t first, int64_t count);
extern attn_view attn_view_swap(attn_view v, int axis_a, int axis_b);
extern attn_view attn_view_of(attn_out o);
typedef enum attn_score {
    ATTN_SCORE_SCALED_DOT,
    ATTN_SCORE_DOT,
    ATTN_SCORE_COSINE,
    ATTN_SCORE_BILINEAR,
    ATTN_SCORE_ADDITIVE,
    ATTN_SCORE_GAUSSIAN,
    ATTN_SCORE_BOXCAR,
    ATTN_SCORE_EPANECHNIKOV,
    ATTN_SCORE_TRIANGULAR,
    ATTN_SCORE_CONSTANT,
    ATTN_SCORE_GIVEN,
    ATTN_SCORE_COUNT
} attn_score;
typedef enum attn_align {
    ATTN_ALIGN_UNSET = 0,
    ATTN_ALIGN_BOTTOM_RIGHT,
    ATTN_ALIGN_POSITIONS,
    ATTN_ALIGN_TOP_LEFT,
    ATTN_ALIGN_COUNT
} attn_align;
typedef enum attn_empty { ATTN_EMPTY_ZERO = 0, ATTN_EMPTY_NAN, ATTN_EMPTY_UNIFORM, ATTN_EMPTY_COUNT } attn_empty;
typedef enum attn_isa { ATTN_ISA_AUTO = 0, ATTN_ISA_SCALAR, ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_COUNT } attn_isa;
typedef struct attn_allocator {
    void *(*allocate)(void *user, size_t bytes);
    void (*release)(void *user, void *block);
    void *user;
} attn_allocator;
typedef void (*attn_task_fn)(void *arg, int64_t index, int32_t worker);
typedef struct attn_parallel {
    void (*run)(void *user, int64_t count, attn_task_fn task, void *arg);
    void *user;
    int32_t workers;
} attn_parallel;
typedef struct attn_desc {
    uint64_t struct_bytes;
    attn_view q, k, v;
    attn_out out;
    attn_out lse;
    attn_out weights;
    attn_out scores;
    attn_out scores_softcap;
    attn_out scores_masked;
    int32_t score;
    int32_t scale_set;
    float scale;
    float sigma;
    attn_view sigma_per_head;
    attn_view bilinear;
    attn_view w_q, w_k;
    attn_view w_v;
    attn_view hidden_bias;
    attn_view given_scores;
    float softcap;
    attn_view bias;
    attn_view alibi;
    attn_view sink;
    attn_view mask;
    attn_view key_lengths;
    attn_view query_lengths;
    int32_t causal;
    int32_t align;
    attn_view positions;
    int32_t window;
    int32_t empty;
    int64_t window_left;
    int64_t window_right;
    float dropout;
    int32_t weights_after_dropout;
    uint64_t seed;
    int64_t dropout_origin[4];
    int32_t isa;
    int32_t reserved;
    void *workspace;
    size_t workspace_bytes;
    attn_allocator allocator;
    attn_parallel parallel;
    attn_out stats;
    void *stream;
} attn_desc;
typedef enum attn_grad_bit {
    ATTN_GRAD_Q = 1 << 0,
    ATTN_GRAD_K = 1 << 1,
    ATTN_GRAD_V = 1 << 2,
    ATTN_GRAD_GIVEN_SCORES = 1 << 3,
    ATTN_GRAD_BIAS = 1 << 4,
    ATTN_GRAD_BILINEAR = 1 << 5,
    ATTN_GRAD_W_Q = 1 << 6,
    ATTN_GRAD_W_K = 1 << 7,
    ATTN_GRAD_W_V = 1 << 8,
    ATTN_GRAD_HIDDEN_BIAS = 1 << 9,
    ATTN_GRAD_SIGMA = 1 << 10,
    ATTN_GRAD_SCALE = 1 << 11,
    ATTN_GRAD_SINK = 1 << 12,
    ATTN_GRAD_ALIBI = 1 << 13,
    ATTN_GRAD_ALL = (1 << 14) - 1
} attn_grad_bit;
typedef struct attn_grad {
    uint64_t struct_bytes;
    attn_view d_out;
    attn_view d_weights;
    attn_view d_lse;
    attn_out dq, dk, dv;
    attn_out d_given_scores;
    attn_out d_bias;
    attn_out d_bilinear, d_w_q, d_w_k, d_w_v, d_hidden_bias;
    attn_out d_sigma;
    attn_out d_scale;
    attn_out d_sink, d_alibi;
    uint32_t accumulate;
    int32_t reserved;
} attn_grad;
extern attn_status attn_forward(const attn_desc *desc, attn_error *err);
extern attn_status attn_workspace_size(const attn_desc *desc, size_t *bytes, attn_error *err);
extern attn_status attn_backward(const attn_desc *forward, const attn_grad *grad, attn_error *err);
extern attn_status attn_backward_workspace_size(const attn_desc *forward, const attn_grad *grad, size_t *bytes,
                                                attn_error *err);
extern size_t attn_explain_backward(const attn_desc *forward, const attn_grad *grad, char *text, size_t size);
extern attn_status attn_softmax_backward(attn_view x, attn_view d_out, attn_out dx, const attn_desc *options,
                                         attn_error *err);
extern attn_status attn_softmax_backward_workspace_size(attn_view x, attn_view d_out, attn_out dx,
                                                        const attn_desc *options, size_t *bytes, attn_error *err);
extern attn_status attn_bmm_backward(attn_view a, attn_view b, attn_view d_out, attn_out da, attn_out db,
                                     uint32_t accumulate, const attn_desc *options, attn_error *err);
extern attn_status attn_bmm_backward_workspace_size(attn_view a, attn_view b, attn_view d_out, attn_out da, attn_out db,
                                                    const attn_desc *options, size_t *bytes, attn_error *err);
extern size_t attn_explain(const attn_desc *desc, char *text, size_t size);
extern attn_status attn_softmax(attn_view x, attn_out out, const attn_desc *options, attn_error *err);
extern attn_status attn_softmax_workspace_size(attn_view x, attn_out out, const attn_desc *options, size_t *bytes,
                                               attn_error *err);
extern attn_status attn_scores(attn_view q, attn_view k, attn_out scores, const attn_desc *options, attn_error *err);
extern attn_status attn_mask(attn_out mask, const attn_desc *options, attn_error *err);
extern attn_status attn_dropout_mask(attn_out mask, const attn_desc *options, attn_error *err);
extern attn_status attn_merge(attn_view out_a, attn_view lse_a, attn_view out_b, attn_view lse_b, attn_out out,
                              attn_out lse, attn_error *err);
extern attn_status attn_bmm(attn_view a, attn_view b, attn_out out, const attn_desc *options, attn_error *err);
extern attn_status attn_bmm_workspace_size(attn_view a, attn_view b, attn_out out, const attn_desc *options,
                                           size_t *bytes, attn_error *err);
typedef struct attn_mha_desc {
    uint64_t struct_bytes;
    attn_view query, key, value;
    attn_view w_query, w_key, w_value, w_result;
    attn_view b_query, b_key, b_value, b_result;
    attn_out out;
    int64_t heads;
    int64_t heads_kv;
    const attn_desc *attention;
} attn_mha_desc;
extern attn_status attn_mha(const attn_mha_desc *desc, attn_error *err);
extern attn_status attn_mha_workspace_size(const attn_mha_desc *desc, size_t *bytes, attn_error *err);
typedef struct attn_mha_grad {
    uint64_t struct_bytes;
    attn_view d_out;
    attn_out dquery, dkey, dvalue;
    attn_out dw_query, dw_key, dw_value, dw_result;
    attn_out db_query, db_key, db_value, db_result;
    const attn_grad *attention;
    uint32_t accumulate;
    int32_t reserved;
} attn_mha_grad;
extern attn_status attn_mha_backward(const attn_mha_desc *desc, const attn_mha_grad *grad, attn_error *err);
extern attn_status attn_mha_backward_workspace_size(const attn_mha_desc *desc, const attn_mha_grad *grad, size_t *bytes,
                                                    attn_error *err);
extern const char *attn_status_string(attn_status status);
extern size_t attn_error_string(const attn_error *err, char *text, size_t size);
extern attn_isa attn_best_isa(void);
extern const char *attn_isa_string(attn_isa isa);
extern const char *attn_score_string(attn_score score);
extern int32_t attn_version(void);
extern size_t attn_layout(char *text, size_t size);
typedef enum attn_function { ATTN_EXP = 0, ATTN_LOG, ATTN_TANH, ATTN_FUNCTION_COUNT } attn_function;
extern attn_status attn_elementary(attn_function function, const float *x, float *y, int64_t n, attn_isa isa);
typedef struct attn_writer {
    int (*write)(void *user, const char *bytes, size_t count);
    void *user;
} attn_writer;
typedef struct attn_buffer {
    char *data;
    size_t size, length;
} attn_buffer;
extern attn_writer attn_buffer_writer(attn_buffer *buffer);
typedef enum attn_colormap {
    ATTN_COLORMAP_REDS = 0,
    ATTN_COLORMAP_VIRIDIS,
    ATTN_COLORMAP_GREY,
    ATTN_COLORMAP_COUNT
} attn_colormap;
typedef enum attn_terminal {
    ATTN_TERMINAL_TRUECOLOR = 0,
    ATTN_TERMINAL_256,
    ATTN_TERMINAL_ASCII,
    ATTN_TERMINAL_COUNT
} attn_terminal;
typedef struct attn_heatmap {
    uint64_t struct_bytes;
    attn_view values;
    const attn_desc *mask_of;
    const char *title;
    const char *x_label;
    const char *y_label;
    const char *const *x_ticks;
    const char *const *y_ticks;
    const char *const *panel_titles;
    int32_t colormap;
    int32_t range_set;
    float range_min, range_max;
    int32_t width, height;
    int32_t ticks_on_top;
    int32_t no_colorbar;
    int32_t numbers;
    int32_t terminal;
} attn_heatmap;
extern attn_status attn_heatmap_ansi(const attn_heatmap *map, attn_writer writer, attn_error *err);
extern attn_status attn_heatmap_svg(const attn_heatmap *map, attn_writer writer, attn_error *err);
extern attn_status attn_heatmap_ppm(const attn_heatmap *map, attn_writer writer, attn_error *err);
