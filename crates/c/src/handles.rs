//! The table of objects that C programs hold handles of.
//!
//! Contract: a handle is given out once. Its low half is a slot, from 1 on, so that 0 is never one;
//! its high half is the generation of the slot. A slot that has used up its generations is not used
//! again.

use crate::failure::Failure;
use crate::wavelock_code as Code;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

type Object = Arc<dyn Any + Send + Sync>;

struct Slot {
    generation: u32,
    object: Option<Object>,
}

struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

static TABLE: Mutex<Table> = Mutex::new(Table { slots: Vec::new(), free: Vec::new() });

fn table() -> MutexGuard<'static, Table> {
    // No operation on it can panic half way.
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    fn slot(&mut self, handle: u64) -> Option<(u32, &mut Slot)> {
        let index = (handle as u32).checked_sub(1)?;
        let slot = self.slots.get_mut(index as usize)?;
        (slot.object.is_some() && u64::from(slot.generation) == handle >> 32)
            .then_some((index, slot))
    }
}

fn stale(handle: u64) -> Failure {
    let text = "was dropped, was used up, or never was one";
    Failure::new(Code::WAVELOCK_STALE, format_args!("handle {handle:#x} {text}"))
}

/// Keeps an object and returns its handle.
pub(crate) fn insert<T: Any + Send + Sync>(object: T) -> Result<u64, Failure> {
    let object: Object = Arc::new(object);
    let mut table = table();
    let index = match table.free.pop() {
        Some(index) => index,
        None => {
            let index = u32::try_from(table.slots.len()).ok().filter(|index| *index < u32::MAX);
            let full = || Failure::new(Code::WAVELOCK_RANGE, "too many objects at once");
            let index = index.ok_or_else(full)?;
            table.slots.push(Slot { generation: 0, object: None });
            index
        }
    };
    let slot = &mut table.slots[index as usize];
    slot.object = Some(object);
    Ok(u64::from(slot.generation) << 32 | u64::from(index + 1))
}

/// The object of a handle, if it is of this kind.
pub(crate) fn get<T: Any + Send + Sync>(handle: u64) -> Result<Arc<T>, Failure> {
    let object = table().slot(handle).map(|(_, slot)| slot.object.clone());
    let object = object.flatten().ok_or_else(|| stale(handle))?;
    object.downcast().map_err(|_| {
        let text = "is of another kind of object";
        Failure::new(Code::WAVELOCK_KIND, format_args!("handle {handle:#x} {text}"))
    })
}

/// Ends a handle. The object lives on while a call uses it.
pub(crate) fn remove(handle: u64) -> Result<(), Failure> {
    let mut table = table();
    let Some((index, slot)) = table.slot(handle) else { return Err(stale(handle)) };
    let object = slot.object.take();
    if let Some(next) = slot.generation.checked_add(1) {
        slot.generation = next;
        table.free.push(index);
    }
    drop(table);
    // Without the table: what is dropped may call back.
    drop(object);
    Ok(())
}

/// An object that one call at a time may use.
pub(crate) struct Exclusive<T>(Mutex<T>);

impl<T> Exclusive<T> {
    pub(crate) const fn new(object: T) -> Self {
        Self(Mutex::new(object))
    }

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, T>, Failure> {
        match self.0.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::WouldBlock) => Err(Failure::new(
                Code::WAVELOCK_BUSY,
                "the object is in use: by another thread, or by the call that called this one",
            )),
            Err(TryLockError::Poisoned(_)) => Err(Failure::new(
                Code::WAVELOCK_BUG,
                "an earlier call on the object ended with a bug of this library",
            )),
        }
    }
}

/// An object that is changed step by step and then used up.
pub(crate) type Draft<T> = Exclusive<Option<T>>;

/// Changes a draft.
pub(crate) fn change<T: Any + Send>(
    handle: u64,
    change: impl FnOnce(T) -> T,
) -> Result<(), Failure> {
    let draft = get::<Draft<T>>(handle)?;
    let mut draft = draft.lock()?;
    let before = draft.take().ok_or_else(|| stale(handle))?;
    *draft = Some(change(before));
    Ok(())
}

/// Changes a draft, or leaves it as it is if that is refused.
pub(crate) fn try_change<T: Any + Send + Clone>(
    handle: u64,
    change: impl FnOnce(T) -> Result<T, Failure>,
) -> Result<(), Failure> {
    let draft = get::<Draft<T>>(handle)?;
    let mut draft = draft.lock()?;
    let before = draft.clone().ok_or_else(|| stale(handle))?;
    *draft = Some(change(before)?);
    Ok(())
}

/// Uses a draft up: its handle ends.
pub(crate) fn take<T: Any + Send>(handle: u64) -> Result<T, Failure> {
    let taken = get::<Draft<T>>(handle)?.lock()?.take().ok_or_else(|| stale(handle))?;
    remove(handle)?;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_given_out_once_and_names_one_kind() {
        let first = insert(7u32).expect("room");
        assert_eq!(*get::<u32>(first).expect("its own"), 7);
        assert_eq!(get::<u64>(first).expect_err("another kind").code, Code::WAVELOCK_KIND);
        remove(first).expect("once");
        let second = insert(8u32).expect("room");
        assert_ne!(first, second);
        for handle in [first, 0, u64::MAX, second ^ 1 << 40] {
            assert_eq!(get::<u32>(handle).expect_err("stale").code, Code::WAVELOCK_STALE);
            assert_eq!(remove(handle).expect_err("stale").code, Code::WAVELOCK_STALE);
        }
        remove(second).expect("once");
    }

    #[test]
    fn what_is_in_use_is_busy_and_what_is_used_up_is_stale() {
        let handle = insert(Draft::new(Some(1u8))).expect("room");
        let own = get::<Draft<u8>>(handle).expect("its own");
        let guard = own.lock().expect("free");
        assert_eq!(take::<u8>(handle).expect_err("in use").code, Code::WAVELOCK_BUSY);
        drop(guard);
        change(handle, |number: u8| number + 1).expect("free");
        assert_eq!(take::<u8>(handle).expect("free"), 2);
        assert_eq!(take::<u8>(handle).expect_err("used up").code, Code::WAVELOCK_STALE);
    }
}
