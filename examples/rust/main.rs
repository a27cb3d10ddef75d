// Scaled dot product attention of 2 queries over 4 keys from Rust, checked against the formula in f64.
//     cc -O2 -c -x c -DATTN_IMPLEMENTATION attn.h -o attn.o
//     rustc --edition 2021 -O examples/rust/main.rs -C link-args="attn.o -lgcc" -o attention && ./attention
// libgcc has the table of what the CPU has, which gcc's code looks at.
mod attn; // attn.rs, which ../bindings.py writes
use attn::*;
use std::ffi::CStr;

// Row-major arrays [1,1,rows,columns]. A view borrows nothing: what it points to must live as long as it is used.
fn view(data: &[f32], columns: usize) -> attn_view {
    unsafe { attn_view_bhsd(data.as_ptr(), 1, 1, (data.len() / columns) as i64, columns as i64) }
}

fn out(data: &mut [f32], columns: usize) -> attn_out {
    unsafe { attn_out_bhsd(data.as_mut_ptr(), 1, 1, (data.len() / columns) as i64, columns as i64) }
}

fn forward(desc: &attn_desc) -> Result<(), String> {
    let mut error = attn_error::default();
    if unsafe { attn_forward(desc, &mut error) } == ATTN_OK {
        return Ok(());
    }
    let mut text = [0; 160];
    unsafe { attn_error_string(&error, text.as_mut_ptr(), text.len()) };
    Err(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
}

fn main() {
    let q = [6.0f32, 0.0, 0.0, 0.0, 6.0, 0.0];
    let k = [1.0f32, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0];
    let v = [1.0f32, 10.0, 2.0, 20.0, 3.0, 30.0, 4.0, 40.0];
    let (mut result, mut weights) = ([0.0f32; 4], [0.0f32; 8]);
    let mut desc = attn_desc {
        struct_bytes: std::mem::size_of::<attn_desc>() as u64, // so that any later library takes it
        q: view(&q, 3),
        k: view(&k, 3),
        v: view(&v, 2),
        out: out(&mut result, 2),
        weights: out(&mut weights, 4),
        ..Default::default()
    };
    forward(&desc).expect("attn_forward");

    let e = (6.0 / 3f64.sqrt()).exp(); // the mass of keys i and 3 for query i; the others have 1
    for i in 0..2 {
        let exact: Vec<f64> = (0..4).map(|j| if j == i || j == 3 { e } else { 1.0 } / (2.0 * e + 2.0)).collect();
        for j in 0..4 {
            assert!((weights[4 * i + j] as f64 - exact[j]).abs() < 1e-6, "weight {i} {j}");
        }
        for c in 0..2 {
            let sum: f64 = (0..4).map(|j| exact[j] * v[2 * j + c] as f64).sum();
            assert!((result[2 * i + c] as f64 - sum).abs() < 1e-4, "output {i} {c}");
        }
        println!("query {i}: weights {:.4?}, output {:.4?}", &weights[4 * i..4 * i + 4], &result[2 * i..2 * i + 2]);
    }
    desc.k.size[3] = 2;
    let message = forward(&desc).unwrap_err();
    assert_eq!(message, "k.size[3] must equal q.size[3]: 3, is 2");
    println!("refused, as it should be: {message}");
}
