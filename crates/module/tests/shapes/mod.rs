//! Adversarial modules: each generator makes a valid module of about the requested size that is a
//! worst case for some part of loading. Used by the tests and the benchmark of loading.
//!
//! Bytes are written by hand: an assembler would be slower than what is measured.

/// A generator, and how large a module of this shape can be before a limit refuses it.
pub(crate) struct Shape {
    /// For tables and messages.
    pub(crate) name: &'static str,
    /// Makes a module of about this many bytes.
    pub(crate) make: fn(usize) -> Vec<u8>,
    /// Ask for no more bytes than this.
    pub(crate) most: usize,
    /// Bytes that a module of this shape has at any size.
    pub(crate) fixed: usize,
}

/// Every shape. The first is an ordinary program, for comparison.
pub(crate) const SHAPES: &[Shape] = &[
    Shape { name: "ordinary code", make: ordinary, most: 16 << 20, fixed: 0 },
    Shape { name: "empty functions", make: functions, most: 400_000, fixed: 0 },
    Shape {
        name: "functions of 31,000 locals",
        make: functions_of_locals,
        most: 1 << 20,
        fixed: 0,
    },
    Shape { name: "locals in groups of one", make: local_groups, most: 16 << 20, fixed: 0 },
    Shape { name: "nested blocks", make: nested_blocks, most: 16 << 20, fixed: 0 },
    Shape { name: "nested loops", make: nested_loops, most: 16 << 20, fixed: 0 },
    Shape {
        name: "branches under 9,000 blocks",
        make: branches_in_depth,
        most: 4 << 20,
        fixed: 27_000,
    },
    Shape { name: "one br_table", make: branch_table, most: 4 << 20, fixed: 0 },
    Shape { name: "many br_tables", make: branch_tables, most: 4 << 20, fixed: 0 },
    Shape {
        name: "br_tables of 9,000 labels",
        make: wide_branch_tables,
        most: 4 << 20,
        fixed: 45_000,
    },
    Shape { name: "copies at joins: br_if", make: copies_at_branches, most: 4 << 20, fixed: 3_000 },
    Shape {
        name: "copies at joins: br_table",
        make: copies_at_tables,
        most: 4 << 20,
        fixed: 2_000,
    },
    Shape {
        name: "constants at joins: br_table",
        make: constants_at_tables,
        most: 4 << 20,
        fixed: 7_000,
    },
    Shape { name: "copies at joins: return", make: copies_at_returns, most: 4 << 20, fixed: 3_000 },
    Shape { name: "operands kept over blocks", make: kept_operands, most: 4 << 20, fixed: 20_000 },
    Shape { name: "operands kept over calls", make: kept_over_calls, most: 4 << 20, fixed: 0 },
    Shape { name: "one local on the stack", make: preserved_local, most: 4 << 20, fixed: 20_000 },
    Shape { name: "br_table of 1,000 values", make: wide_targets, most: 4 << 20, fixed: 4_000 },
    Shape {
        name: "functions of 1,000 parameters",
        make: wide_functions,
        most: 400_000,
        fixed: 1_000,
    },
    Shape { name: "blocks of 1,000 values", make: wide_blocks, most: 4 << 20, fixed: 4_000 },
    Shape { name: "calls of 1,000 results", make: wide_calls, most: 4 << 20, fixed: 1_000 },
    Shape { name: "calls", make: calls, most: 4 << 20, fixed: 0 },
    Shape { name: "calls of 1,000 arguments", make: wide_arguments, most: 4 << 20, fixed: 4_000 },
    Shape { name: "unreachable calls", make: unreachable_calls, most: 4 << 20, fixed: 2_000 },
    Shape { name: "types of 1,000 values", make: wide_types, most: 16 << 20, fixed: 0 },
    Shape { name: "equal types", make: equal_types, most: 400_000, fixed: 0 },
    Shape { name: "imports", make: imports, most: 100_000, fixed: 0 },
    Shape { name: "exports", make: exports, most: 1 << 20, fixed: 0 },
    Shape { name: "exports of one prefix", make: long_exports, most: 16 << 20, fixed: 0 },
    Shape { name: "globals", make: globals, most: 600_000, fixed: 0 },
    Shape {
        name: "globals of long expressions",
        make: long_globals,
        most: 16 << 20,
        fixed: 30_000,
    },
    Shape { name: "empty element segments", make: element_segments, most: 300_000, fixed: 0 },
    Shape { name: "one element segment", make: elements, most: 4 << 20, fixed: 0 },
    Shape { name: "element expressions", make: element_expressions, most: 8 << 20, fixed: 0 },
    Shape {
        name: "active element segments",
        make: active_element_segments,
        most: 600_000,
        fixed: 0,
    },
    Shape { name: "long segment offsets", make: long_offsets, most: 8 << 20, fixed: 0 },
    Shape { name: "empty data segments", make: data_segments, most: 200_000, fixed: 0 },
    Shape { name: "active data segments", make: active_data_segments, most: 700_000, fixed: 0 },
    Shape { name: "one data segment", make: data, most: 16 << 20, fixed: 0 },
    Shape { name: "function names", make: names, most: 16 << 20, fixed: 0 },
    Shape { name: "name sections", make: name_sections, most: 16 << 20, fixed: 0 },
    Shape {
        name: "name sections, descending",
        make: descending_name_sections,
        most: 16 << 20,
        fixed: 0,
    },
    Shape { name: "custom sections", make: custom_sections, most: 16 << 20, fixed: 0 },
];

/// The shape of this name.
pub(crate) fn shape(name: &str) -> &'static Shape {
    SHAPES.iter().find(|shape| shape.name == name).expect("a shape of this name")
}

const I32: u8 = 0x7f;
const I64: u8 = 0x7e;
const END: u8 = 0x0b;
const VOID: u8 = 0x40;

/// A module under construction, section by section.
struct Bytes(Vec<u8>);

impl Bytes {
    fn module() -> Self {
        Self(b"\0asm\x01\0\0\0".to_vec())
    }

    fn section(mut self, id: u8, content: &[u8]) -> Self {
        self.0.push(id);
        leb(&mut self.0, content.len());
        self.0.extend_from_slice(content);
        self
    }

    /// A section that is a list of equal entries.
    fn repeated(self, id: u8, count: usize, entry: &[u8]) -> Self {
        self.section(id, &list(&entry.repeat(count), count))
    }

    /// Type 0 is `() -> ()`, and there are the types given here.
    fn types(self, more: &[(usize, usize)]) -> Self {
        let mut content = vec![0x60, 0, 0];
        for &(parameters, results) in more {
            content.extend(function_type(parameters, results));
        }
        self.section(1, &list(&content, more.len() + 1))
    }

    /// Function `_start` of type 0, whose body this is.
    fn code(self, body: &[u8]) -> Vec<u8> {
        self.section(3, &[1, 0]).start().section(10, &list(&sized(body), 1)).0
    }

    /// Exports function 0 as `_start`.
    fn start(self) -> Self {
        self.section(7, &list(&[named(b"_start"), vec![0, 0]].concat(), 1))
    }

    /// An empty `_start`: what a module of other sections has, so that it can also be instantiated.
    fn empty_function(self) -> Self {
        self.section(3, &[1, 0]).start()
    }
}

fn leb(into: &mut Vec<u8>, mut value: usize) {
    while value > 0x7f {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

fn number(value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    leb(&mut bytes, value);
    bytes
}

/// The bytes with their count before them.
fn list(bytes: &[u8], count: usize) -> Vec<u8> {
    [number(count), bytes.to_vec()].concat()
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    list(bytes, bytes.len())
}

fn named(name: &[u8]) -> Vec<u8> {
    sized(name)
}

fn function_type(parameters: usize, results: usize) -> Vec<u8> {
    [vec![0x60], list(&vec![I32; parameters], parameters), list(&vec![I32; results], results)]
        .concat()
}

/// The code section that goes with [`Bytes::empty_function`].
const EMPTY_BODY: [u8; 4] = [1, 2, 0, END];

/// A body with `locals` locals of type i32.
fn body(locals: usize, code: &[u8]) -> Vec<u8> {
    let declared =
        if locals == 0 { vec![0] } else { [vec![1], number(locals), vec![I32]].concat() };
    [declared, code.to_vec(), vec![END]].concat()
}

/// Functions as compilers emit them: a loop of loads, stores and arithmetic, a call, a test.
fn ordinary(bytes: usize) -> Vec<u8> {
    let code = [
        0x03, VOID, // loop
        0x20, 0, 0x20, 0, 0x28, 2, 4, 0x20, 1, 0x6a, 0x36, 2, 8, // store(a, load(a) + b)
        0x20, 1, 0x41, 1, 0x6a, 0x21, 1, // b += 1
        0x20, 0, 0x41, 12, 0x6a, 0x22, 0, 0x10, 1, // f(a += 12)
        0x20, 1, 0x41, 0xe4, 0, 0x49, 0x0d, 0, END, // repeat while b < 100
    ];
    let entry = sized(&body(1, &code));
    let count = (bytes / (entry.len() + 1)).max(1);
    Bytes::module()
        .types(&[(1, 0)])
        .section(3, &list(&[vec![0], vec![1; count]].concat(), count + 1))
        .section(5, &[1, 0, 1])
        .start()
        .section(10, &list(&[vec![2, 0, END], entry.repeat(count)].concat(), count + 1))
        .0
}

/// `count` functions of type 0 with this body.
fn equal_functions(count: usize, body: &[u8]) -> Vec<u8> {
    Bytes::module().types(&[]).repeated(3, count, &[0]).start().repeated(10, count, &sized(body)).0
}

fn functions(bytes: usize) -> Vec<u8> {
    equal_functions((bytes / 4).max(1), &body(0, &[]))
}

fn functions_of_locals(bytes: usize) -> Vec<u8> {
    equal_functions((bytes / 8).max(1), &body(31_000, &[]))
}

/// One function with more locals than the limit allows.
pub(crate) fn too_many_locals() -> Vec<u8> {
    equal_functions(1, &body(50_000, &[]))
}

/// The largest functions of a shape that together have about `bytes`: `one` makes a body of that
/// many bytes.
fn large_functions(bytes: usize, most: usize, one: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let count = bytes.div_ceil(most).max(1);
    equal_functions(count, &one(bytes / count))
}

fn local_groups(bytes: usize) -> Vec<u8> {
    let one = |bytes: usize| {
        let groups = (bytes / 2).max(1);
        [number(groups), [1, I32].repeat(groups), vec![END]].concat()
    };
    large_functions(bytes, 60_000, one)
}

fn nested(opcode: u8, bytes: usize) -> Vec<u8> {
    let one = |bytes: usize| {
        let depth = (bytes / 3).max(1);
        body(0, &[[opcode, VOID].repeat(depth), vec![END; depth]].concat())
    };
    large_functions(bytes, 29_000, one)
}

fn nested_blocks(bytes: usize) -> Vec<u8> {
    nested(0x02, bytes)
}

fn nested_loops(bytes: usize) -> Vec<u8> {
    nested(0x03, bytes)
}

/// Blocks nested `depth` deep around this code.
fn within_blocks(depth: usize, code: &[u8]) -> Vec<u8> {
    [[0x02, VOID].repeat(depth), code.to_vec(), vec![END; depth]].concat()
}

fn branches_in_depth(bytes: usize) -> Vec<u8> {
    let branches = [0x20, 0, 0x0d, 0].repeat((bytes.saturating_sub(27_000) / 4).max(1));
    Bytes::module().types(&[]).code(&body(1, &within_blocks(9_000, &branches)))
}

fn branch_table(bytes: usize) -> Vec<u8> {
    let one = |bytes: usize| {
        body(1, &[vec![0x20, 0, 0x0e], list(&vec![0; bytes], bytes), vec![0]].concat())
    };
    large_functions(bytes, 65_000, one)
}

fn branch_tables(bytes: usize) -> Vec<u8> {
    let one = [0x02, VOID, 0x20, 0, 0x0e, 1, 0, 0, END];
    Bytes::module().types(&[]).code(&body(1, &one.repeat((bytes / one.len()).max(1))))
}

fn wide_branch_tables(bytes: usize) -> Vec<u8> {
    let labels: Vec<u8> = (0..9_000).flat_map(number).collect();
    let table = [vec![0x02, VOID, 0x20, 0, 0x0e], list(&labels, 9_000), vec![0, END]].concat();
    let count = (bytes.saturating_sub(27_000) / table.len()).max(1);
    Bytes::module().types(&[]).code(&body(1, &within_blocks(9_000, &table.repeat(count))))
}

/// 1,000 operands that are locals, none of them in its own register.
fn thousand_locals() -> Vec<u8> {
    [0x20, 0].repeat(1_000)
}

/// Each `br_if` carries 1,000 values that have to be copied to the label's registers: 4 bytes,
/// 1,000 copies.
fn copies_at_branches(bytes: usize) -> Vec<u8> {
    let branches = [0x20, 0, 0x0d, 0].repeat((bytes.saturating_sub(3_000) / 4).max(1));
    let code = [vec![0x02, 1], thousand_locals(), branches, vec![END, 0x00]].concat();
    Bytes::module().types(&[(0, 1_000)]).code(&body(1, &code))
}

/// Each label of a `br_table` needs its own 1,000 copies: 5 bytes with its block. `values` pushes
/// what is carried.
fn labels_with_copies(bytes: usize, results: &[u8], values: &[u8]) -> Vec<u8> {
    let one = |bytes: usize| {
        let depth = (bytes.saturating_sub(values.len()) / 5).max(1);
        let labels: Vec<u8> = (0..depth).flat_map(number).collect();
        let table = [vec![0x20, 0, 0x0e], list(&labels, depth), vec![0]].concat();
        body(
            1,
            &[[0x02, 1].repeat(depth), values.to_vec(), table, vec![END; depth], vec![0x00]]
                .concat(),
        )
    };
    let count = bytes.div_ceil(47_000 + values.len()).max(1);
    let entry = sized(&one(bytes / count));
    let types = [function_type(0, 0), vec![0x60, 0], results.to_vec()].concat();
    let module = Bytes::module().section(1, &list(&types, 2));
    module.repeated(3, count, &[0]).start().repeated(10, count, &entry).0
}

fn copies_at_tables(bytes: usize) -> Vec<u8> {
    labels_with_copies(bytes, &list(&[I32; 1_000], 1_000), &thousand_locals())
}

/// The same with constants that need two words each.
fn constants_at_tables(bytes: usize) -> Vec<u8> {
    let constant = [0x42, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
    labels_with_copies(bytes, &list(&[I64; 1_000], 1_000), &constant.repeat(1_000))
}

/// Each `br_if` to the function's own label is a return of 1,000 values.
fn copies_at_returns(bytes: usize) -> Vec<u8> {
    let branches = [0x20, 0, 0x0d, 0].repeat((bytes.saturating_sub(3_000) / 4).max(1));
    let many = sized(&body(1, &[thousand_locals(), branches].concat()));
    let content = list(&[vec![2, 0, END], many].concat(), 2);
    Bytes::module().types(&[(0, 1_000)]).section(3, &[2, 0, 1]).start().section(10, &content).0
}

/// Operands below many blocks: 10,000 locals and 60 constants, which stay unplaced.
fn kept_operands(bytes: usize) -> Vec<u8> {
    let one = [0x03, VOID, END, 0x02, VOID, 0x20, 0, 0x0d, 0, END];
    let blocks = one.repeat((bytes.saturating_sub(20_000) / one.len()).max(1));
    let kept = [[0x20, 0].repeat(10_000), [0x41, 1].repeat(60)].concat();
    Bytes::module().types(&[]).code(&body(1, &[kept, blocks, vec![0x00]].concat()))
}

/// Each call is a stop point with 60 dead registers.
fn kept_over_calls(bytes: usize) -> Vec<u8> {
    let calls = [0x10, 0].repeat((bytes / 2).max(1));
    Bytes::module().types(&[]).code(&body(0, &[[0x41, 1].repeat(60), calls, vec![0x00]].concat()))
}

/// A local that stands on the stack 10,000 times, and then changes again and again.
fn preserved_local(bytes: usize) -> Vec<u8> {
    let sets = [0x20, 0, 0x41, 1, 0x21, 0, 0x1a].repeat((bytes.saturating_sub(20_000) / 7).max(1));
    Bytes::module()
        .types(&[])
        .code(&body(1, &[[0x20, 0].repeat(10_000), sets, vec![0x00]].concat()))
}

/// One byte for each target, and each target's values are checked.
fn wide_targets(bytes: usize) -> Vec<u8> {
    let targets = bytes.saturating_sub(3_000).max(1);
    let table = [vec![0x20, 0, 0x0e], list(&vec![0; targets], targets), vec![0]].concat();
    let code = [vec![0x02, 1], thousand_locals(), table, vec![END, 0x00]].concat();
    Bytes::module().types(&[(0, 1_000)]).code(&body(1, &code))
}

fn wide_functions(bytes: usize) -> Vec<u8> {
    let count = (bytes.saturating_sub(1_000) / 4).max(1);
    let types = [vec![0], vec![1; count]].concat();
    let module = Bytes::module().types(&[(1_000, 0)]).section(3, &list(&types, count + 1));
    module.start().repeated(10, count + 1, &sized(&body(0, &[]))).0
}

fn wide_blocks(bytes: usize) -> Vec<u8> {
    let one = [0x02, 1, END, 0x03, 1, END];
    let blocks = one.repeat((bytes.saturating_sub(2_000) / one.len()).max(1));
    let code = [thousand_locals(), blocks, vec![0x00]].concat();
    Bytes::module().types(&[(1_000, 1_000)]).code(&body(1, &code))
}

/// `_start` with this code, and function 1 of type 1, which does not return.
fn with_callee(parameters: usize, results: usize, locals: usize, code: &[u8]) -> Vec<u8> {
    let content = [sized(&body(locals, code)), sized(&body(0, &[0x00]))].concat();
    let module = Bytes::module().types(&[(parameters, results)]);
    module.section(3, &[2, 0, 1]).start().section(10, &list(&content, 2)).0
}

fn wide_calls(bytes: usize) -> Vec<u8> {
    let one = [0x02, VOID, 0x10, 1, 0x0c, 0, END];
    with_callee(0, 1_000, 0, &one.repeat((bytes / one.len()).max(1)))
}

fn wide_arguments(bytes: usize) -> Vec<u8> {
    let calls = [0x10, 1].repeat((bytes.saturating_sub(2_000) / 2).max(1));
    with_callee(1_000, 1_000, 1, &[thousand_locals(), calls, vec![0x00]].concat())
}

fn unreachable_calls(bytes: usize) -> Vec<u8> {
    with_callee(
        1_000,
        1_000,
        0,
        &[vec![0x00], [0x10, 1].repeat((bytes / 2).max(1)), vec![0x00]].concat(),
    )
}

fn calls(bytes: usize) -> Vec<u8> {
    Bytes::module().types(&[]).code(&body(0, &[0x10, 0].repeat((bytes / 2).max(1))))
}

fn wide_types(bytes: usize) -> Vec<u8> {
    let count = (bytes / 1_005).max(1);
    let mut content = vec![0x60, 0, 0];
    for at in 0..count {
        // Equal but for their last values, which spell the number.
        let values: Vec<u8> =
            (0..1_000).rev().map(|bit| I32 - u8::from(bit < 30 && at >> bit & 1 == 1)).collect();
        content.extend([vec![0x60], list(&values, 1_000), vec![0]].concat());
    }
    Bytes::module()
        .section(1, &list(&content, count + 1))
        .empty_function()
        .section(10, &EMPTY_BODY)
        .0
}

fn equal_types(bytes: usize) -> Vec<u8> {
    let module = Bytes::module().repeated(1, (bytes / 3).clamp(1, 100_000), &[0x60, 0, 0]);
    module.empty_function().section(10, &EMPTY_BODY).0
}

fn imports(bytes: usize) -> Vec<u8> {
    let entry = [named(b"wavelock"), named(b"yield"), vec![0, 0]].concat();
    let count = (bytes / entry.len()).clamp(1, 10_000);
    let exported = [named(b"_start"), vec![0], number(count)].concat();
    let module = Bytes::module().types(&[]).repeated(2, count, &entry).section(3, &[1, 0]);
    module.section(7, &list(&exported, 1)).section(10, &EMPTY_BODY).0
}

fn exported(bytes: usize, prefix: usize) -> Vec<u8> {
    let count = (bytes / (prefix + 8)).clamp(1, 99_999);
    let mut content = [named(b"_start"), vec![0, 0]].concat();
    for at in 0..count {
        let name = format!("{}{at:05}", "a".repeat(prefix));
        content.extend([named(name.as_bytes()), vec![0, 0]].concat());
    }
    let module =
        Bytes::module().types(&[]).section(3, &[1, 0]).section(7, &list(&content, count + 1));
    module.section(10, &EMPTY_BODY).0
}

fn exports(bytes: usize) -> Vec<u8> {
    exported(bytes, 0)
}

fn long_exports(bytes: usize) -> Vec<u8> {
    exported(bytes, 1_000)
}

fn globals(bytes: usize) -> Vec<u8> {
    let count = (bytes / 5).clamp(1, 100_000);
    let module =
        Bytes::module().types(&[]).section(3, &[1, 0]).repeated(6, count, &[I32, 0, 0x41, 0, END]);
    module.start().section(10, &EMPTY_BODY).0
}

fn long_globals(bytes: usize) -> Vec<u8> {
    let entry =
        [vec![I32, 0, 0x41, 0], [0x41, 1].repeat(10_000), vec![0x6a; 10_000], vec![END]].concat();
    let count = (bytes / entry.len()).max(1);
    let module = Bytes::module().types(&[]).section(3, &[1, 0]).repeated(6, count, &entry);
    module.start().section(10, &EMPTY_BODY).0
}

/// A table of one element, and this element section.
fn with_elements(count: usize, content: &[u8]) -> Vec<u8> {
    let module =
        Bytes::module().types(&[]).section(3, &[1, 0]).section(4, &[1, 0x70, 0, 1]).start();
    module.section(9, &list(content, count)).section(10, &EMPTY_BODY).0
}

fn element_segments(bytes: usize) -> Vec<u8> {
    let count = (bytes / 3).clamp(1, 100_000);
    with_elements(count, &[1, 0, 0].repeat(count))
}

fn elements(bytes: usize) -> Vec<u8> {
    with_elements(1, &[vec![1, 0], list(&vec![0; bytes], bytes)].concat())
}

fn element_expressions(bytes: usize) -> Vec<u8> {
    let count = (bytes / 3).max(1);
    with_elements(1, &[vec![5, 0x70], list(&[0xd2, 0, END].repeat(count), count)].concat())
}

fn active_element_segments(bytes: usize) -> Vec<u8> {
    let count = (bytes / 6).clamp(1, 100_000);
    with_elements(count, &[0, 0x41, 0, END, 1, 0].repeat(count))
}

fn long_offsets(bytes: usize) -> Vec<u8> {
    let steps = (bytes / 3).max(1);
    let offset = [vec![0x41, 0], [0x41, 0, 0x6a].repeat(steps), vec![END]].concat();
    with_elements(1, &[vec![0], offset, vec![1, 0]].concat())
}

/// A memory of one page, and this data section.
fn with_data(count: usize, content: &[u8]) -> Vec<u8> {
    let module = Bytes::module().types(&[]).section(3, &[1, 0]).section(5, &[1, 0, 1]).start();
    module.section(10, &EMPTY_BODY).section(11, &list(content, count)).0
}

fn data_segments(bytes: usize) -> Vec<u8> {
    let count = (bytes / 2).clamp(1, 100_000);
    with_data(count, &[1, 0].repeat(count))
}

fn active_data_segments(bytes: usize) -> Vec<u8> {
    let count = (bytes / 6).clamp(1, 100_000);
    with_data(count, &[0, 0x41, 0, END, 1, 7].repeat(count))
}

fn data(bytes: usize) -> Vec<u8> {
    with_data(1, &[vec![1], list(&vec![7; bytes], bytes)].concat())
}

/// An empty function, and these custom sections.
fn with_custom(sections: &[u8]) -> Vec<u8> {
    let module = Bytes::module().types(&[]).empty_function().section(10, &EMPTY_BODY).0;
    [module, sections.to_vec()].concat()
}

fn name_section(content: &[u8]) -> Vec<u8> {
    [vec![0], sized(&[named(b"name"), content.to_vec()].concat())].concat()
}

/// Names of these functions, in this order: `f` and nothing else, which is 5 bytes with a number of
/// three.
fn function_names(numbers: impl ExactSizeIterator<Item = usize>) -> Vec<u8> {
    let count = numbers.len();
    let namings: Vec<u8> = numbers.flat_map(|at| [number(at), named(b"f")].concat()).collect();
    [vec![1], sized(&list(&namings, count))].concat()
}

fn names(bytes: usize) -> Vec<u8> {
    with_custom(&name_section(&function_names(0..bytes / 5)))
}

fn sections_of_names(numbers: impl Iterator<Item = usize>) -> Vec<u8> {
    let sections: Vec<u8> =
        numbers.flat_map(|at| name_section(&function_names(at..at + 1))).collect();
    with_custom(&sections)
}

fn name_sections(bytes: usize) -> Vec<u8> {
    sections_of_names(0..bytes / 15)
}

fn descending_name_sections(bytes: usize) -> Vec<u8> {
    sections_of_names((0..bytes / 15).rev())
}

fn custom_sections(bytes: usize) -> Vec<u8> {
    with_custom(&[0, 2, 1, b'a'].repeat(bytes / 4))
}
