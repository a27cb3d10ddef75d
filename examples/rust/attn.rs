// Written by ../bindings.py from attn.h: structures, enums and functions under their names in C.
#![allow(dead_code, non_camel_case_types)]
use std::mem::zeroed;
use std::os::raw::{c_char, c_int, c_void};

pub type attn_status = c_int;
pub const ATTN_OK: attn_status = 0;
pub const ATTN_ERR_NULL: attn_status = 1;
pub const ATTN_ERR_TYPE: attn_status = 2;
pub const ATTN_ERR_RANK: attn_status = 3;
pub const ATTN_ERR_SIZE: attn_status = 4;
pub const ATTN_ERR_STRIDE: attn_status = 5;
pub const ATTN_ERR_RANGE: attn_status = 6;
pub const ATTN_ERR_OPTION: attn_status = 7;
pub const ATTN_ERR_OVERFLOW: attn_status = 8;
pub const ATTN_ERR_OVERLAP: attn_status = 9;
pub const ATTN_ERR_WORKSPACE: attn_status = 10;
pub const ATTN_ERR_ALLOC: attn_status = 11;
pub const ATTN_ERR_ISA: attn_status = 12;
pub const ATTN_ERR_WRITE: attn_status = 13;
pub const ATTN_ERR_PLACE: attn_status = 14;
pub const ATTN_ERR_CUDA: attn_status = 15;
pub const ATTN_STATUS_COUNT: attn_status = 16;

pub type attn_type = c_int;
pub const ATTN_F32: attn_type = 0;
pub const ATTN_F16: attn_type = 1;
pub const ATTN_BF16: attn_type = 2;
pub const ATTN_F64: attn_type = 3;
pub const ATTN_U8: attn_type = 4;
pub const ATTN_I32: attn_type = 5;
pub const ATTN_I64: attn_type = 6;
pub const ATTN_I8: attn_type = 7;
pub const ATTN_TYPE_COUNT: attn_type = 8;

pub type attn_score = c_int;
pub const ATTN_SCORE_SCALED_DOT: attn_score = 0;
pub const ATTN_SCORE_DOT: attn_score = 1;
pub const ATTN_SCORE_COSINE: attn_score = 2;
pub const ATTN_SCORE_BILINEAR: attn_score = 3;
pub const ATTN_SCORE_ADDITIVE: attn_score = 4;
pub const ATTN_SCORE_GAUSSIAN: attn_score = 5;
pub const ATTN_SCORE_BOXCAR: attn_score = 6;
pub const ATTN_SCORE_EPANECHNIKOV: attn_score = 7;
pub const ATTN_SCORE_TRIANGULAR: attn_score = 8;
pub const ATTN_SCORE_CONSTANT: attn_score = 9;
pub const ATTN_SCORE_GIVEN: attn_score = 10;
pub const ATTN_SCORE_COUNT: attn_score = 11;

pub type attn_align = c_int;
pub const ATTN_ALIGN_UNSET: attn_align = 0;
pub const ATTN_ALIGN_BOTTOM_RIGHT: attn_align = 1;
pub const ATTN_ALIGN_POSITIONS: attn_align = 2;
pub const ATTN_ALIGN_TOP_LEFT: attn_align = 3;
pub const ATTN_ALIGN_COUNT: attn_align = 4;

pub type attn_empty = c_int;
pub const ATTN_EMPTY_ZERO: attn_empty = 0;
pub const ATTN_EMPTY_NAN: attn_empty = 1;
pub const ATTN_EMPTY_UNIFORM: attn_empty = 2;
pub const ATTN_EMPTY_COUNT: attn_empty = 3;

pub type attn_isa = c_int;
pub const ATTN_ISA_AUTO: attn_isa = 0;
pub const ATTN_ISA_SCALAR: attn_isa = 1;
pub const ATTN_ISA_AVX2: attn_isa = 2;
pub const ATTN_ISA_AVX512: attn_isa = 3;
pub const ATTN_ISA_NEON: attn_isa = 4;
pub const ATTN_ISA_PORTABLE: attn_isa = 5;
pub const ATTN_ISA_RELAXED: attn_isa = 6;
pub const ATTN_ISA_COUNT: attn_isa = 7;

pub type attn_precision = c_int;
pub const ATTN_PRECISION_F32: attn_precision = 0;
pub const ATTN_PRECISION_FAST: attn_precision = 1;
pub const ATTN_PRECISION_COUNT: attn_precision = 2;

pub type attn_grad_bit = c_int;
pub const ATTN_GRAD_Q: attn_grad_bit = 1;
pub const ATTN_GRAD_K: attn_grad_bit = 2;
pub const ATTN_GRAD_V: attn_grad_bit = 4;
pub const ATTN_GRAD_GIVEN_SCORES: attn_grad_bit = 8;
pub const ATTN_GRAD_BIAS: attn_grad_bit = 16;
pub const ATTN_GRAD_BILINEAR: attn_grad_bit = 32;
pub const ATTN_GRAD_W_Q: attn_grad_bit = 64;
pub const ATTN_GRAD_W_K: attn_grad_bit = 128;
pub const ATTN_GRAD_W_V: attn_grad_bit = 256;
pub const ATTN_GRAD_HIDDEN_BIAS: attn_grad_bit = 512;
pub const ATTN_GRAD_SIGMA: attn_grad_bit = 1024;
pub const ATTN_GRAD_SCALE: attn_grad_bit = 2048;
pub const ATTN_GRAD_SINK: attn_grad_bit = 4096;
pub const ATTN_GRAD_ALIBI: attn_grad_bit = 8192;
pub const ATTN_GRAD_ALL: attn_grad_bit = 16383;

pub type attn_rope_scaling = c_int;
pub const ATTN_ROPE_PLAIN: attn_rope_scaling = 0;
pub const ATTN_ROPE_LINEAR: attn_rope_scaling = 1;
pub const ATTN_ROPE_NTK: attn_rope_scaling = 2;
pub const ATTN_ROPE_YARN: attn_rope_scaling = 3;
pub const ATTN_ROPE_LLAMA3: attn_rope_scaling = 4;
pub const ATTN_ROPE_SCALING_COUNT: attn_rope_scaling = 5;

pub type attn_function = c_int;
pub const ATTN_EXP: attn_function = 0;
pub const ATTN_LOG: attn_function = 1;
pub const ATTN_TANH: attn_function = 2;
pub const ATTN_FUNCTION_COUNT: attn_function = 3;

pub type attn_colormap = c_int;
pub const ATTN_COLORMAP_REDS: attn_colormap = 0;
pub const ATTN_COLORMAP_VIRIDIS: attn_colormap = 1;
pub const ATTN_COLORMAP_GREY: attn_colormap = 2;
pub const ATTN_COLORMAP_DIVERGING: attn_colormap = 3;
pub const ATTN_COLORMAP_COUNT: attn_colormap = 4;

pub type attn_terminal = c_int;
pub const ATTN_TERMINAL_TRUECOLOR: attn_terminal = 0;
pub const ATTN_TERMINAL_256: attn_terminal = 1;
pub const ATTN_TERMINAL_ASCII: attn_terminal = 2;
pub const ATTN_TERMINAL_COUNT: attn_terminal = 3;

pub type attn_task_fn = Option<unsafe extern "C" fn(*mut c_void, i64, i32)>;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct attn_error {
    pub status: i32,
    pub field: *const c_char,
    pub rule: *const c_char,
    pub got: i64,
    pub want: i64,
    pub has_numbers: i32,
    pub cuda: i32,
    pub place: [i64; 2],
    pub has_place: i32,
    pub has_type: i32,
    pub reserved2: i64,
}

impl Default for attn_error {
    fn default() -> Self {
        unsafe { zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct attn_view {
    pub data: *const c_void,
    pub size: [i64; 4],
    pub stride: [i64; 4],
    pub r#type: i32,
    pub rank: i32,
}

impl Default for attn_view {
    fn default() -> Self {
        unsafe { zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct attn_out {
    pub data: *mut c_void,
    pub size: [i64; 4],
    pub stride: [i64; 4],
    pub r#type: i32,
    pub rank: i32,
}

impl Default for attn_out {
    fn default() -> Self {
        unsafe { zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct attn_allocator {
    pub allocate: Option<unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void>,
    pub release: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    pub user: *mut c_void,
}

impl Default for attn_allocator {
    fn default() -> Self {
        unsafe { zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct attn_parallel {
    pub run: Option<unsafe extern "C" fn(*mut c_void, i64, attn_task_fn, *mut c_void)>,
    pub user: *mut c_void,
    pub workers: i32,
}

impl Default for attn_parallel {
    fn default() -> Self {
        unsafe { zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct attn_desc {
    pub struct_bytes: u64,
    pub q: attn_view,
    pub k: attn_view,
    pub v: attn_view,
    pub out: attn_out,
    pub lse: attn_out,
    pub weights: attn_out,
    pub scores: attn_out,
    pub scores_softcap: attn_out,
    pub scores_masked: attn_out,
    pub score: i32,
    pub scale_set: i32,
    pub scale: f32,
    pub sigma: f32,
    pub sigma_per_head: attn_view,
    pub bilinear: attn_view,
    pub w_q: attn_view,
    pub w_k: attn_view,
    pub w_v: attn_view,
    pub hidden_bias: attn_view,
    pub given_scores: attn_view,
    pub softcap: f32,
    pub bias: attn_view,
    pub alibi: attn_view,
    pub sink: attn_view,
    pub mask: attn_view,
    pub key_lengths: attn_view,
    pub query_lengths: attn_view,
    pub causal: i32,
    pub align: i32,
    pub positions: attn_view,
    pub window: i32,
    pub empty: i32,
    pub window_left: i64,
    pub window_right: i64,
    pub dropout: f32,
    pub weights_after_dropout: i32,
    pub seed: u64,
    pub dropout_origin: [i64; 4],
    pub isa: i32,
    pub reserved: i32,
    pub workspace: *mut c_void,
    pub workspace_bytes: usize,
    pub allocator: attn_allocator,
    pub parallel: attn_parallel,
    pub stats: attn_out,
    pub stream: *mut c_void,
    pub k_scale: attn_view,
    pub v_scale: attn_view,
    pub precision: i32,
    pub reserved2: i32,
    pub query_starts: attn_view,
    pub key_starts: attn_view,
    pub page_table: attn_view,
    pub carry_in: attn_view,
    pub carry_out: attn_out,
    pub key_origin: i64,
    pub bias_index: attn_view,
}

impl Default for attn_desc {
    fn default() -> Self {
        unsafe { zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct attn_grad {
    pub struct_bytes: u64,
    pub d_out: attn_view,
    pub d_weights: attn_view,
    pub d_lse: attn_view,
    pub dq: attn_out,
    pub dk: attn_out,
    pub dv: attn_out,
    pub d_given_scores: attn_out,
    pub d_bias: attn_out,
    pub d_bilinear: attn_out,
    pub d_w_q: attn_out,
    pub d_w_k: attn_out,
    pub d_w_v: attn_out,
    pub d_hidden_bias: attn_out,
    pub d_sigma: attn_out,
    pub d_scale: attn_out,
    pub d_sink: attn_out,
    pub d_alibi: attn_out,
    pub accumulate: u32,
    pub reserved: i32,
    pub key_sums: attn_out,
    pub last_queries: i64,
}

impl Default for attn_grad {
    fn default() -> Self {
        unsafe { zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct attn_plan {
    pub workspace_bytes: usize,
    pub phases: i32,
    pub isa: i32,
    pub tasks: [i64; 16],
    pub internal: [i64; 640],
}

impl Default for attn_plan {
    fn default() -> Self {
        unsafe { zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct attn_rope_desc {
    pub struct_bytes: u64,
    pub base: f64,
    pub scaling: i32,
    pub no_truncation: i32,
    pub factor: f64,
    pub original_positions: i64,
    pub low_freq_factor: f64,
    pub high_freq_factor: f64,
    pub beta_fast: f64,
    pub beta_slow: f64,
    pub attention_factor: f64,
    pub first_position: i64,
    pub factors: attn_view,
}

impl Default for attn_rope_desc {
    fn default() -> Self {
        unsafe { zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct attn_mha_desc {
    pub struct_bytes: u64,
    pub query: attn_view,
    pub key: attn_view,
    pub value: attn_view,
    pub w_query: attn_view,
    pub w_key: attn_view,
    pub w_value: attn_view,
    pub w_result: attn_view,
    pub b_query: attn_view,
    pub b_key: attn_view,
    pub b_value: attn_view,
    pub b_result: attn_view,
    pub out: attn_out,
    pub heads: i64,
    pub heads_kv: i64,
    pub attention: *const attn_desc,
    pub saved: *mut c_void,
    pub saved_bytes: usize,
}

impl Default for attn_mha_desc {
    fn default() -> Self {
        unsafe { zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct attn_mha_grad {
    pub struct_bytes: u64,
    pub d_out: attn_view,
    pub dquery: attn_out,
    pub dkey: attn_out,
    pub dvalue: attn_out,
    pub dw_query: attn_out,
    pub dw_key: attn_out,
    pub dw_value: attn_out,
    pub dw_result: attn_out,
    pub db_query: attn_out,
    pub db_key: attn_out,
    pub db_value: attn_out,
    pub db_result: attn_out,
    pub attention: *const attn_grad,
    pub accumulate: u32,
    pub reserved: i32,
}

impl Default for attn_mha_grad {
    fn default() -> Self {
        unsafe { zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct attn_writer {
    pub write: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> c_int>,
    pub user: *mut c_void,
}

impl Default for attn_writer {
    fn default() -> Self {
        unsafe { zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct attn_buffer {
    pub data: *mut c_char,
    pub size: usize,
    pub length: usize,
}

impl Default for attn_buffer {
    fn default() -> Self {
        unsafe { zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct attn_heatmap {
    pub struct_bytes: u64,
    pub values: attn_view,
    pub mask_of: *const attn_desc,
    pub title: *const c_char,
    pub x_label: *const c_char,
    pub y_label: *const c_char,
    pub x_ticks: *const *const c_char,
    pub y_ticks: *const *const c_char,
    pub panel_titles: *const *const c_char,
    pub colormap: i32,
    pub range_set: i32,
    pub range_min: f32,
    pub range_max: f32,
    pub width: i32,
    pub height: i32,
    pub ticks_on_top: i32,
    pub no_colorbar: i32,
    pub numbers: i32,
    pub terminal: i32,
    pub cell_titles: i32,
    pub mask: attn_view,
}

impl Default for attn_heatmap {
    fn default() -> Self {
        unsafe { zeroed() }
    }
}

extern "C" {
    pub fn attn_view_f32(data: *const f32, rank: c_int, n0: i64, n1: i64, n2: i64, n3: i64) -> attn_view;
    pub fn attn_view_u8(data: *const u8, rank: c_int, n0: i64, n1: i64, n2: i64, n3: i64) -> attn_view;
    pub fn attn_view_i32(data: *const i32, rank: c_int, n0: i64, n1: i64, n2: i64, n3: i64) -> attn_view;
    pub fn attn_view_i64(data: *const i64, rank: c_int, n0: i64, n1: i64, n2: i64, n3: i64) -> attn_view;
    pub fn attn_out_f32(data: *mut f32, rank: c_int, n0: i64, n1: i64, n2: i64, n3: i64) -> attn_out;
    pub fn attn_out_u8(data: *mut u8, rank: c_int, n0: i64, n1: i64, n2: i64, n3: i64) -> attn_out;
    pub fn attn_view_typed(r#type: attn_type, data: *const c_void, rank: c_int, n0: i64, n1: i64, n2: i64,
        n3: i64) -> attn_view;
    pub fn attn_out_typed(r#type: attn_type, data: *mut c_void, rank: c_int, n0: i64, n1: i64, n2: i64,
        n3: i64) -> attn_out;
    pub fn attn_view_bhsd(data: *const f32, b: i64, h: i64, s: i64, d: i64) -> attn_view;
    pub fn attn_view_bshd(data: *const f32, b: i64, s: i64, h: i64, d: i64) -> attn_view;
    pub fn attn_out_bhsd(data: *mut f32, b: i64, h: i64, s: i64, d: i64) -> attn_out;
    pub fn attn_out_bshd(data: *mut f32, b: i64, s: i64, h: i64, d: i64) -> attn_out;
    pub fn attn_view_qkv(data: *const f32, which: c_int, b: i64, s: i64, h: i64, d: i64) -> attn_view;
    pub fn attn_view_rows(data: *const f32, b: i64, s: i64, h: i64, d: i64, row: i64) -> attn_view;
    pub fn attn_out_rows(data: *mut f32, b: i64, s: i64, h: i64, d: i64, row: i64) -> attn_out;
    pub fn attn_view_slice(v: attn_view, axis: c_int, first: i64, count: i64) -> attn_view;
    pub fn attn_out_slice(o: attn_out, axis: c_int, first: i64, count: i64) -> attn_out;
    pub fn attn_view_swap(v: attn_view, axis_a: c_int, axis_b: c_int) -> attn_view;
    pub fn attn_view_of(o: attn_out) -> attn_view;
    pub fn attn_forward(desc: *const attn_desc, err: *mut attn_error) -> attn_status;
    pub fn attn_workspace_size(desc: *const attn_desc, bytes: *mut usize, err: *mut attn_error) -> attn_status;
    pub fn attn_plan_forward(desc: *const attn_desc, plan: *mut attn_plan, err: *mut attn_error) -> attn_status;
    pub fn attn_task(plan: *const attn_plan, workspace: *mut c_void, phase: i32, index: i64, worker: i32);
    pub fn attn_backward(forward: *const attn_desc, grad: *const attn_grad, err: *mut attn_error) -> attn_status;
    pub fn attn_backward_workspace_size(forward: *const attn_desc, grad: *const attn_grad, bytes: *mut usize,
        err: *mut attn_error) -> attn_status;
    pub fn attn_plan_backward(forward: *const attn_desc, grad: *const attn_grad, plan: *mut attn_plan,
        err: *mut attn_error) -> attn_status;
    pub fn attn_explain_backward(forward: *const attn_desc, grad: *const attn_grad, text: *mut c_char,
        size: usize) -> usize;
    pub fn attn_key_sums(forward: *const attn_desc, last_queries: i64, key_sums: attn_out,
        err: *mut attn_error) -> attn_status;
    pub fn attn_key_sums_workspace_size(forward: *const attn_desc, last_queries: i64, key_sums: attn_out,
        bytes: *mut usize, err: *mut attn_error) -> attn_status;
    pub fn attn_softmax_backward(x: attn_view, d_out: attn_view, dx: attn_out, options: *const attn_desc,
        err: *mut attn_error) -> attn_status;
    pub fn attn_softmax_backward_workspace_size(x: attn_view, d_out: attn_view, dx: attn_out, options: *const attn_desc,
        bytes: *mut usize, err: *mut attn_error) -> attn_status;
    pub fn attn_bmm_backward(a: attn_view, b: attn_view, d_out: attn_view, da: attn_out, db: attn_out, accumulate: u32,
        options: *const attn_desc, err: *mut attn_error) -> attn_status;
    pub fn attn_bmm_backward_workspace_size(a: attn_view, b: attn_view, d_out: attn_view, da: attn_out, db: attn_out,
        options: *const attn_desc, bytes: *mut usize, err: *mut attn_error) -> attn_status;
    pub fn attn_explain(desc: *const attn_desc, text: *mut c_char, size: usize) -> usize;
    pub fn attn_softmax(x: attn_view, out: attn_out, options: *const attn_desc, err: *mut attn_error) -> attn_status;
    pub fn attn_softmax_workspace_size(x: attn_view, out: attn_out, options: *const attn_desc, bytes: *mut usize,
        err: *mut attn_error) -> attn_status;
    pub fn attn_scores(q: attn_view, k: attn_view, scores: attn_out, options: *const attn_desc,
        err: *mut attn_error) -> attn_status;
    pub fn attn_mask(mask: attn_out, options: *const attn_desc, err: *mut attn_error) -> attn_status;
    pub fn attn_dropout_mask(mask: attn_out, options: *const attn_desc, err: *mut attn_error) -> attn_status;
    pub fn attn_merge(out_a: attn_view, lse_a: attn_view, out_b: attn_view, lse_b: attn_view, out: attn_out,
        lse: attn_out, err: *mut attn_error) -> attn_status;
    pub fn attn_merge_with(out_a: attn_view, lse_a: attn_view, out_b: attn_view, lse_b: attn_view, out: attn_out,
        lse: attn_out, options: *const attn_desc, err: *mut attn_error) -> attn_status;
    pub fn attn_bmm(a: attn_view, b: attn_view, out: attn_out, options: *const attn_desc,
        err: *mut attn_error) -> attn_status;
    pub fn attn_bmm_workspace_size(a: attn_view, b: attn_view, out: attn_out, options: *const attn_desc,
        bytes: *mut usize, err: *mut attn_error) -> attn_status;
    pub fn attn_convert(from: attn_view, to: attn_out, err: *mut attn_error) -> attn_status;
    pub fn attn_convert_with(from: attn_view, to: attn_out, options: *const attn_desc,
        err: *mut attn_error) -> attn_status;
    pub fn attn_quantize(from: attn_view, codes: attn_out, scale: attn_out, err: *mut attn_error) -> attn_status;
    pub fn attn_quantize_with(from: attn_view, codes: attn_out, scale: attn_out, options: *const attn_desc,
        err: *mut attn_error) -> attn_status;
    pub fn attn_unpack_q8_0(blocks: *const c_void, codes: attn_out, scale: attn_out,
        err: *mut attn_error) -> attn_status;
    pub fn attn_lengths_of(offsets: attn_view, lengths: attn_out, err: *mut attn_error) -> attn_status;
    pub fn attn_append(fresh: attn_view, cache: attn_out, lengths: attn_view, options: *const attn_desc,
        err: *mut attn_error) -> attn_status;
    pub fn attn_rope(x: attn_view, cosines: attn_view, sines: attn_view, positions: attn_view, flags: u32,
        out: attn_out, err: *mut attn_error) -> attn_status;
    pub fn attn_rope_with(x: attn_view, cosines: attn_view, sines: attn_view, positions: attn_view, flags: u32,
        out: attn_out, options: *const attn_desc, err: *mut attn_error) -> attn_status;
    pub fn attn_rope_table(cosines: attn_out, sines: attn_out, desc: *const attn_rope_desc,
        err: *mut attn_error) -> attn_status;
    pub fn attn_alibi_slopes(slopes: attn_out, err: *mut attn_error) -> attn_status;
    pub fn attn_mha(desc: *const attn_mha_desc, err: *mut attn_error) -> attn_status;
    pub fn attn_mha_workspace_size(desc: *const attn_mha_desc, bytes: *mut usize, err: *mut attn_error) -> attn_status;
    pub fn attn_mha_saved_size(desc: *const attn_mha_desc, bytes: *mut usize, err: *mut attn_error) -> attn_status;
    pub fn attn_mha_backward(desc: *const attn_mha_desc, grad: *const attn_mha_grad,
        err: *mut attn_error) -> attn_status;
    pub fn attn_mha_backward_workspace_size(desc: *const attn_mha_desc, grad: *const attn_mha_grad, bytes: *mut usize,
        err: *mut attn_error) -> attn_status;
    pub fn attn_status_string(status: attn_status) -> *const c_char;
    pub fn attn_error_string(err: *const attn_error, text: *mut c_char, size: usize) -> usize;
    pub fn attn_best_isa() -> attn_isa;
    pub fn attn_isa_string(isa: attn_isa) -> *const c_char;
    pub fn attn_score_string(score: attn_score) -> *const c_char;
    pub fn attn_enable_amx(err: *mut attn_error) -> attn_status;
    pub fn attn_version() -> i32;
    pub fn attn_layout(text: *mut c_char, size: usize) -> usize;
    pub fn attn_elementary(function: attn_function, x: *const f32, y: *mut f32, n: i64, isa: attn_isa) -> attn_status;
    pub fn attn_buffer_writer(buffer: *mut attn_buffer) -> attn_writer;
    pub fn attn_heatmap_ansi(map: *const attn_heatmap, writer: attn_writer, err: *mut attn_error) -> attn_status;
    pub fn attn_heatmap_svg(map: *const attn_heatmap, writer: attn_writer, err: *mut attn_error) -> attn_status;
    pub fn attn_heatmap_ppm(map: *const attn_heatmap, writer: attn_writer, err: *mut attn_error) -> attn_status;
}
