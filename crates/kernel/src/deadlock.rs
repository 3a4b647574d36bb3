//! The wait-for graph: which blocked coroutines can never resume, the smallest set of them that
//! explains it, and a cycle if there is one.
//!
//! Contract: a pure function over plain nodes, independent of lanes and channels. A node can resume
//! by itself, or waits for *any* of its targets (a receive: any possible sender), or for *all* of
//! them. A node is stuck when no order of events frees it: the stuck set is what remains when every
//! node that can resume has been removed. A closed set is a set of stuck nodes that waits only on
//! itself: an any-node with all its targets, an all-node with at least one stuck target. The
//! smallest closed set is exact for any-nodes and for all-nodes with one stuck target; an all-node
//! with several is taken to wait for the first of them, which keeps the answer closed but may not
//! be smallest.
//!
//! Linear in nodes and edges. Diagnostics: it allocates.

use alloc::vec;
use alloc::vec::Vec;

/// One node of the wait-for graph. Targets are indices of other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitNode<'a> {
    /// Can resume by itself.
    Free,
    /// Resumes when one of these has; with none it never does.
    Any(&'a [u32]),
    /// Resumes when all of these have.
    All(&'a [u32]),
}

impl<'a> WaitNode<'a> {
    const fn targets(self) -> &'a [u32] {
        match self {
            Self::Free => &[],
            Self::Any(targets) | Self::All(targets) => targets,
        }
    }
}

/// A deadlock, named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deadlock {
    /// The nodes that can never resume, ascending.
    pub stuck: Vec<u32>,
    /// The smallest closed set (the one with the least member when several are smallest),
    /// ascending.
    pub members: Vec<u32>,
    /// A cycle in it, from its least member on, each waiting for the next and the last for the
    /// first. Empty when there is none: then the set is one node whose targets do not exist.
    pub cycle: Vec<u32>,
}

/// Finds the deadlock of a graph, if a node is stuck.
///
/// # Panics
/// When a target is not a node.
#[must_use]
pub fn find_deadlock(nodes: &[WaitNode<'_>]) -> Option<Deadlock> {
    let free = free_nodes(nodes);
    let stuck: Vec<u32> = (0..nodes.len() as u32).filter(|&node| !free[node as usize]).collect();
    if stuck.is_empty() {
        return None;
    }
    let members = smallest_closed_set(nodes, &free);
    let cycle = cycle_in(nodes, &free, &members);
    Some(Deadlock { stuck, members, cycle })
}

/// The nodes that can resume, by themselves or once others have.
fn free_nodes(nodes: &[WaitNode<'_>]) -> Vec<bool> {
    let mut waiters: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
    let mut missing = vec![0usize; nodes.len()];
    let mut free = vec![false; nodes.len()];
    let mut work = Vec::new();
    for (index, node) in (0u32..).zip(nodes) {
        node.targets().iter().for_each(|&target| waiters[target as usize].push(index));
        let (starts, needs) = match node {
            WaitNode::Free => (true, 0),
            WaitNode::Any(_) => (false, 1),
            WaitNode::All(targets) => (targets.is_empty(), targets.len()),
        };
        missing[index as usize] = needs;
        if starts {
            free[index as usize] = true;
            work.push(index);
        }
    }
    while let Some(node) = work.pop() {
        for &waiter in &waiters[node as usize] {
            let waiter = waiter as usize;
            missing[waiter] = missing[waiter].saturating_sub(1);
            if missing[waiter] == 0 && !free[waiter] {
                free[waiter] = true;
                work.push(waiter as u32);
            }
        }
    }
    free
}

/// What a stuck node's set must contain: all targets of an any-node (they are all stuck), the first
/// stuck target of an all-node.
fn needed<'a>(nodes: &[WaitNode<'a>], free: &[bool], node: u32) -> &'a [u32] {
    match nodes[node as usize] {
        WaitNode::Free => &[],
        WaitNode::Any(targets) => targets,
        WaitNode::All(targets) => match targets.iter().position(|&target| !free[target as usize]) {
            Some(first) => &targets[first..=first],
            None => &[],
        },
    }
}

/// The smallest strongly connected component without an edge out of it: Tarjan's algorithm with an
/// explicit stack.
// Long: one loop over one explicit stack; its parts share every local.
fn smallest_closed_set(nodes: &[WaitNode<'_>], free: &[bool]) -> Vec<u32> {
    const UNSEEN: u32 = u32::MAX;
    let count = nodes.len();
    let (mut order, mut low) = (vec![UNSEEN; count], vec![0u32; count]);
    let (mut on_stack, mut open) = (vec![false; count], vec![false; count]);
    let (mut stack, mut calls): (Vec<u32>, Vec<(u32, usize)>) = (Vec::new(), Vec::new());
    let mut next = 0u32;
    let mut best: Option<Vec<u32>> = None;
    for root in (0..count as u32).filter(|&node| !free[node as usize]) {
        if order[root as usize] != UNSEEN {
            continue;
        }
        calls.push((root, 0));
        while let Some((node, at)) = calls.pop() {
            let index = node as usize;
            if at == 0 {
                (order[index], low[index]) = (next, next);
                next += 1;
                stack.push(node);
                on_stack[index] = true;
            }
            let targets = needed(nodes, free, node);
            if at > 0 {
                // Back from a target: what it reaches, this reaches; an edge into a finished
                // component leaves this one.
                let target = targets[at - 1] as usize;
                if on_stack[target] {
                    low[index] = low[index].min(low[target]);
                } else {
                    open[index] = true;
                }
            }
            if let Some(&target) = targets.get(at) {
                calls.push((node, at + 1));
                if order[target as usize] == UNSEEN {
                    calls.push((target, 0));
                }
                continue;
            }
            if low[index] != order[index] {
                continue;
            }
            let mut component = Vec::new();
            let mut leaves = false;
            while let Some(member) = stack.pop() {
                on_stack[member as usize] = false;
                leaves |= open[member as usize];
                component.push(member);
                if member == node {
                    break;
                }
            }
            component.sort_unstable();
            let smaller = best
                .as_ref()
                .is_none_or(|best| (component.len(), component[0]) < (best.len(), best[0]));
            if !leaves && smaller {
                best = Some(component);
            }
        }
    }
    best.unwrap_or_default()
}

/// Follows needed targets inside the set from its least member until one repeats.
fn cycle_in(nodes: &[WaitNode<'_>], free: &[bool], members: &[u32]) -> Vec<u32> {
    let mut place_in_path: Vec<Option<u32>> = vec![None; nodes.len()];
    let mut path: Vec<u32> = Vec::new();
    let mut at = match members.first() {
        Some(&first) => first,
        None => return path,
    };
    loop {
        if let Some(start) = place_in_path[at as usize] {
            path.drain(..start as usize);
            let least = path
                .iter()
                .enumerate()
                .min_by_key(|(_, node)| **node)
                .map_or(0, |(index, _)| index);
            path.rotate_left(least);
            return path;
        }
        place_in_path[at as usize] = Some(path.len() as u32);
        path.push(at);
        match needed(nodes, free, at).iter().min() {
            Some(&target) => at = target,
            None => return Vec::new(),
        }
    }
}
