//! The graph of calls: functions, and types of indirect calls; its strongly connected parts,
//! callees first (Tarjan's algorithm with an explicit stack).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{WcetMissing, for_each, referenced};
use crate::Module;
use crate::op::Op;

/// No index yet.
const NONE: u32 = u32::MAX;

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Node {
    /// A function that the module defines, counted from the first of them.
    Function(u32),
    /// A type of indirect calls.
    Type(u32),
}

pub(super) struct Calls {
    imported: u32,
    functions: u32,
    /// By type index: its number among the types that differ, or [`NONE`] if no call uses it.
    type_nodes: Vec<u32>,
    /// By number: the functions that an indirect call of the type can reach.
    candidates: Vec<Vec<u32>>,
    /// Edges of all nodes; those of node i are `starts[i]..starts[i + 1]`.
    edges: Vec<u32>,
    starts: Vec<u32>,
    /// Nodes, callees first; parts end at `ends`.
    order: Vec<u32>,
    ends: Vec<u32>,
}

impl Calls {
    pub(super) fn new(module: &Module) -> Self {
        let mut calls = Self {
            imported: module.imported_functions(),
            functions: module.code().functions().len() as u32,
            type_nodes: Vec::new(),
            candidates: Vec::new(),
            edges: Vec::new(),
            starts: Vec::new(),
            order: Vec::new(),
            ends: Vec::new(),
        };
        calls.find_types(module);
        calls.find_edges(module);
        calls.find_parts();
        calls
    }

    /// Numbers the types of indirect calls; equal types are one.
    fn find_types(&mut self, module: &Module) {
        let types = module.types();
        self.type_nodes = alloc::vec![NONE; types.len()];
        let mut used = Vec::new();
        for_each_call(module, |_, op, second| {
            if matches!(op, Op::CallIndirect | Op::ReturnCallIndirect) {
                let index = second as u32;
                if self.type_nodes[index as usize] == NONE {
                    self.type_nodes[index as usize] = 0;
                    used.push(index);
                }
            }
        });
        if used.is_empty() {
            return;
        }
        let mut numbers = BTreeMap::new();
        for index in used {
            let next = numbers.len() as u32;
            self.type_nodes[index as usize] =
                *numbers.entry(&types[index as usize]).or_insert(next);
        }
        self.candidates = alloc::vec![Vec::new(); numbers.len()];
        for function in referenced(module) {
            let kind = module.function_type(function);
            if let Some(&number) = kind.and_then(|kind| numbers.get(kind)) {
                self.candidates[number as usize].push(function);
            }
        }
    }

    fn find_edges(&mut self, module: &Module) {
        let mut function = 0;
        self.starts.push(0);
        for_each_call(module, |caller, op, second| {
            while function < caller {
                self.starts.push(self.edges.len() as u32);
                function += 1;
            }
            self.edges.push(match op {
                Op::Call | Op::ReturnCall => (second >> 32) as u32 - self.imported,
                _ => self.functions + self.type_nodes[second as u32 as usize],
            });
        });
        while (self.starts.len() as u32) <= self.functions {
            self.starts.push(self.edges.len() as u32);
        }
        for callees in &self.candidates {
            let defined = callees.iter().filter_map(|callee| callee.checked_sub(self.imported));
            self.edges.extend(defined);
            self.starts.push(self.edges.len() as u32);
        }
    }

    fn find_parts(&mut self) {
        let count = self.starts.len() - 1;
        // When a node was found, and the earliest found that it reaches.
        let mut found = alloc::vec![NONE; count];
        let mut low = alloc::vec![NONE; count];
        let mut is_open = alloc::vec![false; count];
        let (mut open, mut path, mut next) = (Vec::new(), Vec::new(), 0);
        for root in 0..count as u32 {
            if found[root as usize] != NONE {
                continue;
            }
            path.push((root, self.starts[root as usize]));
            while let Some(&mut (node, ref mut edge)) = path.last_mut() {
                let at = node as usize;
                if found[at] == NONE {
                    (found[at], low[at], is_open[at]) = (next, next, true);
                    next += 1;
                    open.push(node);
                }
                if *edge < self.starts[at + 1] {
                    let callee = self.edges[*edge as usize];
                    *edge += 1;
                    if found[callee as usize] == NONE {
                        path.push((callee, self.starts[callee as usize]));
                    } else if is_open[callee as usize] {
                        low[at] = low[at].min(found[callee as usize]);
                    }
                    continue;
                }
                path.pop();
                if let Some(&(caller, _)) = path.last() {
                    low[caller as usize] = low[caller as usize].min(low[at]);
                }
                if low[at] == found[at] {
                    while let Some(member) = open.pop() {
                        is_open[member as usize] = false;
                        self.order.push(member);
                        if member == node {
                            break;
                        }
                    }
                    self.ends.push(self.order.len() as u32);
                }
            }
        }
    }

    /// The strongly connected parts, callees before callers.
    pub(super) fn parts(&self) -> impl Iterator<Item = &[u32]> {
        let starts = core::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.order[start as usize..end as usize])
    }

    /// Number of types that differ among those of indirect calls.
    pub(super) fn types(&self) -> usize {
        self.candidates.len()
    }

    pub(super) fn node(&self, node: u32) -> Node {
        match node.checked_sub(self.functions) {
            Some(number) => Node::Type(number),
            None => Node::Function(node),
        }
    }

    /// The number of a type, by its index in the module.
    pub(super) fn type_number(&self, index: u32) -> usize {
        self.type_nodes[index as usize] as usize
    }

    /// The functions that a type's node can reach, by index in the module.
    pub(super) fn candidates(&self, node: u32) -> &[u32] {
        &self.candidates[(node - self.functions) as usize]
    }

    /// Why the functions of a part have no worst case, if they call one another.
    pub(super) fn recursion(&self, part: &[u32]) -> Option<WcetMissing> {
        let edges = |node: u32| {
            let (start, end) = (self.starts[node as usize], self.starts[node as usize + 1]);
            &self.edges[start as usize..end as usize]
        };
        if let [one] = part
            && !edges(*one).contains(one)
        {
            return None;
        }
        let mut functions: Vec<u32> =
            part.iter().copied().filter(|&node| node < self.functions).collect();
        functions.sort_unstable();
        let named = |at: usize| functions.get(at).map(|defined| defined + self.imported);
        let indirect = functions.len() < part.len();
        Some(WcetMissing::Recursion { function: named(0)?, through: named(1), indirect })
    }
}

/// Calls `act` with the function, the instruction and the second word of every call that is not of
/// an import, in order.
fn for_each_call(module: &Module, mut act: impl FnMut(u32, Op, u64)) {
    let words = module.code().words();
    for_each(module, |defined, at, op| {
        if matches!(op, Op::Call | Op::ReturnCall | Op::CallIndirect | Op::ReturnCallIndirect) {
            act(defined, op, words[at as usize + 1]);
        }
        false
    });
}
