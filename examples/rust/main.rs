// Scaled dot product attention of 2 queries over 4 keys from Rust, checked against the formula in f64; and two
// sequences in a cache of pages.
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
    let status = unsafe { attn_forward(desc, &mut error) };
    checked(status, &error)
}

fn checked(status: attn_status, error: &attn_error) -> Result<(), String> {
    if status == ATTN_OK {
        return Ok(());
    }
    let mut text = [0; 160];
    unsafe { attn_error_string(error, text.as_mut_ptr(), text.len()) };
    Err(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
}

fn integers(data: &[i32]) -> attn_view {
    unsafe { attn_view_i32(data.as_ptr(), 1, data.len() as i64, 0, 0, 0) }
}

fn described() -> attn_desc { // with its size, so that any later library takes it
    attn_desc { struct_bytes: std::mem::size_of::<attn_desc>() as u64, ..Default::default() }
}

// Two sequences of 3 and 2 words, one behind the other, are turned by their positions and go into a cache of pages of 2
// rows; the last word of each then looks at its own sequence. It must find what it finds without cache and pages.
fn sequences() -> Result<(), String> {
    const D: usize = 4;
    let words: Vec<f32> = (0..5 * D).map(|i| (i * i % 11) as f32 / 11.0).collect();
    let (offsets, positions, table, nothing) = ([0, 3, 5], [0, 1, 2, 0, 1], [3, 0, 1, -1], [0, 0]);
    let (mut lengths, mut error) = ([0i32; 2], attn_error::default());
    let mut turned = [0.0f32; 5 * D];
    let (mut cosines, mut sines) = ([0.0f32; 3 * D / 2], [0.0f32; 3 * D / 2]);
    let mut pool = [f32::NAN; 4 * 2 * D]; // 4 pages
    unsafe {
        let size = lengths.len() as i64;
        let status = attn_lengths_of(integers(&offsets),
            attn_out_typed(ATTN_I32, lengths.as_mut_ptr().cast(), 1, size, 0, 0, 0), &mut error);
        checked(status, &error)?;
        let tables = [&mut cosines, &mut sines].map(|t| attn_out_f32(t.as_mut_ptr(), 2, 3, D as i64 / 2, 0, 0));
        checked(attn_rope_table(tables[0], tables[1], std::ptr::null(), &mut error), &error)?;
        let status = attn_rope(view(&words, D), attn_view_of(tables[0]), attn_view_of(tables[1]),
            attn_view_i32(positions.as_ptr(), 2, 1, 5, 0, 0), 0, out(&mut turned, D), &mut error);
        checked(status, &error)?;
        let mut options = described();
        options.query_starts = integers(&offsets[..2]);
        options.query_lengths = integers(&lengths);
        options.page_table = attn_view_i32(table.as_ptr(), 2, 2, 2, 0, 0);
        let cache = attn_out_bhsd(pool.as_mut_ptr(), 4, 1, 2, D as i64);
        checked(attn_append(view(&turned, D), cache, integers(&nothing), &options, &mut error), &error)?;

        let last = [2, 4]; // the rows of the last words
        let mut found = [0.0f32; 5 * D];
        options.q = view(&turned, D);
        options.k = attn_view_of(cache);
        options.v = attn_view_of(cache);
        options.out = out(&mut found, D);
        options.query_starts = integers(&last);
        options.query_lengths = integers(&[1, 1]);
        options.key_lengths = integers(&lengths);
        forward(&options)?;
        for b in 0..2 {
            let (start, end) = (offsets[b] as usize * D, offsets[b + 1] as usize * D);
            let mut alone = [0.0f32; D];
            let mut desc = described();
            desc.q = view(&turned[end - D..end], D);
            desc.k = view(&turned[start..end], D);
            desc.v = desc.k;
            desc.out = out(&mut alone, D);
            forward(&desc)?;
            assert_eq!(alone[..], found[end - D..end], "sequence {b}");
            println!("sequence {b}: {alone:.4?}, with and without pages");
        }
    }
    Ok(())
}

fn main() {
    let q = [6.0f32, 0.0, 0.0, 0.0, 6.0, 0.0];
    let k = [1.0f32, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0];
    let v = [1.0f32, 10.0, 2.0, 20.0, 3.0, 30.0, 4.0, 40.0];
    let (mut result, mut weights) = ([0.0f32; 4], [0.0f32; 8]);
    let mut desc = attn_desc {
        q: view(&q, 3),
        k: view(&k, 3),
        v: view(&v, 2),
        out: out(&mut result, 2),
        weights: out(&mut weights, 4),
        ..described()
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
    sequences().expect("sequences");
}
