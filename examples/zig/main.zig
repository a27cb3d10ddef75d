// Scaled dot product attention of 2 queries over 4 keys from Zig, checked against the formula in f64. Zig reads the
// header itself and compiles it, too:
//     zig translate-c -lc attn.h >attn.zig
//     zig cc -O2 -c -x c -DATTN_IMPLEMENTATION attn.h -o attn.o
//     zig build-exe -lc attn.o --dep attn -Mroot=examples/zig/main.zig -Mattn=attn.zig --name attention && ./attention
const std = @import("std");
const attn = @import("attn");

// Row-major arrays [1,1,rows,columns].
fn view(data: []const f32, columns: usize) attn.attn_view {
    return attn.attn_view_bhsd(data.ptr, 1, 1, @intCast(data.len / columns), @intCast(columns));
}

fn out(data: []f32, columns: usize) attn.attn_out {
    return attn.attn_out_bhsd(data.ptr, 1, 1, @intCast(data.len / columns), @intCast(columns));
}

pub fn main() !void {
    const q = [_]f32{ 6, 0, 0, 0, 6, 0 };
    const k = [_]f32{ 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0 };
    const v = [_]f32{ 1, 10, 2, 20, 3, 30, 4, 40 };
    var result: [4]f32 = undefined;
    var weights: [8]f32 = undefined;
    var desc = std.mem.zeroes(attn.attn_desc);
    desc.q = view(&q, 3);
    desc.k = view(&k, 3);
    desc.v = view(&v, 2);
    desc.out = out(&result, 2);
    desc.weights = out(&weights, 4);
    if (attn.attn_forward(&desc, null) != attn.ATTN_OK) return error.Refused;

    const e = @exp(6.0 / @sqrt(@as(f64, 3))); // the mass of keys i and 3 for query i; the others have 1
    for (0..2) |i| {
        var sum = [2]f64{ 0, 0 };
        for (0..4) |j| {
            const exact = (if (j == i or j == 3) e else 1.0) / (2 * e + 2);
            if (@abs(weights[4 * i + j] - exact) > 1e-6) return error.WrongWeight;
            for (0..2) |c| sum[c] += exact * v[2 * j + c];
        }
        for (0..2) |c| if (@abs(result[2 * i + c] - sum[c]) > 1e-4) return error.WrongOutput;
        std.debug.print("query {}: weights {any}, ", .{ i, weights[4 * i ..][0..4] });
        std.debug.print("output {any}\n", .{result[2 * i ..][0..2]});
    }
    var err: attn.attn_error = undefined;
    var text: [160]u8 = undefined;
    desc.k.size[3] = 2;
    if (attn.attn_forward(&desc, &err) != attn.ATTN_ERR_SIZE) return error.NotRefused;
    const length = attn.attn_error_string(&err, &text, text.len);
    const message = text[0..length];
    if (!std.mem.eql(u8, message, "k.size[3] must equal q.size[3]: 3, is 2")) return error.OtherMessage;
    std.debug.print("refused, as it should be: {s}\n", .{message});
}
