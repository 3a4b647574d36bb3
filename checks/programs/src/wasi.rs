//! The subset of WASI that the programs need, for engines without WASI: the three streams as pipes,
//! arguments, environment, exit.
//!
//! One function over plain memory, used by both engines. No code is shared with
//! `crates/system/src/wasi.rs`; the expected results come from other implementations of WASI
//! (`expect`).

/// The WASI state of a program.
pub struct Wasi {
    args: Vec<Vec<u8>>,
    env: Vec<Vec<u8>>,
    stdin: Vec<u8>,
    read: usize,
    /// Standard output so far.
    pub stdout: Vec<u8>,
    /// Standard error so far.
    pub stderr: Vec<u8>,
    time: u64,
}

/// The result of a call.
pub enum Answer {
    /// An error code, 0 for success.
    Code(i32),
    /// The program ends with this code.
    Exit(i32),
    /// A pointer is outside the memory.
    BadPointer,
}

const BAD_FILE: i32 = 8;
const NO_SYSTEM_CALL: i32 = 52;
const NOT_SEEKABLE: i32 = 70;

impl Wasi {
    /// A program that has not run.
    pub fn new(args: &[String], env: &[(String, String)], stdin: &[u8]) -> Wasi {
        let closed = |text: &str| [text.as_bytes(), &[0]].concat();
        Wasi {
            args: args.iter().map(|argument| closed(argument)).collect(),
            env: env.iter().map(|(name, value)| closed(&format!("{name}={value}"))).collect(),
            stdin: stdin.into(),
            read: 0,
            stdout: Vec::new(),
            stderr: Vec::new(),
            time: 0,
        }
    }

    /// Executes one call.
    pub fn call(&mut self, name: &str, memory: &mut [u8], arguments: &[u64]) -> Answer {
        self.answer(name, &mut Memory(memory), arguments).unwrap_or(Answer::BadPointer)
    }

    /// `None` if a pointer is outside the memory.
    fn answer(&mut self, name: &str, memory: &mut Memory<'_>, arguments: &[u64]) -> Option<Answer> {
        let argument = |at: usize| arguments.get(at).map_or(0, |value| *value as u32);
        let stream = argument(0);
        let code = match name {
            "args_sizes_get" => sizes(memory, &self.args, argument(0), argument(1))?,
            "args_get" => strings(memory, &self.args, argument(0), argument(1))?,
            "environ_sizes_get" => sizes(memory, &self.env, argument(0), argument(1))?,
            "environ_get" => strings(memory, &self.env, argument(0), argument(1))?,
            "proc_exit" => return Some(Answer::Exit(argument(0) as i32)),
            "sched_yield" => 0,
            "random_get" => {
                memory.bytes(argument(0), argument(1))?.fill(4);
                0
            }
            // Time advances, so that no program waits for it forever; no program prints it.
            "clock_time_get" => {
                self.time += 1_000;
                memory.write(argument(2), &self.time.to_le_bytes())?;
                0
            }
            _ if name.starts_with("fd_") && stream > 2 => BAD_FILE,
            "fd_read" if stream == 0 => {
                let mut total = 0;
                for (start, length) in memory.buffers(argument(1), argument(2))? {
                    let length = (length as usize).min(self.stdin.len() - self.read);
                    memory.write(start, &self.stdin[self.read..self.read + length])?;
                    self.read += length;
                    total += length as u32;
                }
                memory.write(argument(3), &total.to_le_bytes())?;
                0
            }
            "fd_write" if stream > 0 => {
                let sink = if stream == 1 { &mut self.stdout } else { &mut self.stderr };
                let mut total = 0;
                for (start, length) in memory.buffers(argument(1), argument(2))? {
                    sink.extend_from_slice(memory.bytes(start, length)?);
                    total += length;
                }
                memory.write(argument(3), &total.to_le_bytes())?;
                0
            }
            "fd_fdstat_get" => {
                let mut stat = [0; 24];
                stat[8] = if stream == 0 { 2 } else { 64 };
                memory.write(argument(1), &stat)?;
                0
            }
            "fd_filestat_get" => {
                memory.write(argument(1), &[0; 64])?;
                0
            }
            "fd_close" | "fd_fdstat_set_flags" => 0,
            "fd_seek" | "fd_tell" | "fd_pread" | "fd_pwrite" => NOT_SEEKABLE,
            _ if name.starts_with("fd_") || name.starts_with("path_") => BAD_FILE,
            _ => NO_SYSTEM_CALL,
        };
        Some(Answer::Code(code))
    }
}

fn sizes(memory: &mut Memory<'_>, list: &[Vec<u8>], count_at: u32, bytes_at: u32) -> Option<i32> {
    memory.write(count_at, &(list.len() as u32).to_le_bytes())?;
    memory.write(bytes_at, &(list.iter().map(Vec::len).sum::<usize>() as u32).to_le_bytes())?;
    Some(0)
}

fn strings(
    memory: &mut Memory<'_>,
    list: &[Vec<u8>],
    mut pointer_at: u32,
    mut text_at: u32,
) -> Option<i32> {
    for text in list {
        memory.write(pointer_at, &text_at.to_le_bytes())?;
        memory.write(text_at, text)?;
        pointer_at = pointer_at.checked_add(4)?;
        text_at = text_at.checked_add(text.len() as u32)?;
    }
    Some(0)
}

struct Memory<'a>(&'a mut [u8]);

impl Memory<'_> {
    fn bytes(&mut self, start: u32, length: u32) -> Option<&mut [u8]> {
        self.0.get_mut(start as usize..start as usize + length as usize)
    }

    fn write(&mut self, start: u32, bytes: &[u8]) -> Option<()> {
        self.bytes(start, bytes.len() as u32)?.copy_from_slice(bytes);
        Some(())
    }

    fn word(&mut self, at: u32) -> Option<u32> {
        self.bytes(at, 4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn buffers(&mut self, array: u32, count: u32) -> Option<Vec<(u32, u32)>> {
        (0..count)
            .map(|at| {
                let entry = array.checked_add(at.checked_mul(8)?)?;
                Some((self.word(entry)?, self.word(entry.checked_add(4)?)?))
            })
            .collect()
    }
}
