// A buffered writer of the standard library: it tries to write at a position first, and falls back to a stream on ESPIPE.
const std = @import("std");
pub fn main(init: std.process.Init) !void {
    var buffer: [64]u8 = undefined;
    var file = std.Io.File.stdout().writer(init.io, &buffer);
    const out = &file.interface;
    for (0..20) |i| try out.print("line {d} of a buffered writer\n", .{i});
    try out.flush();
}
