//! The results of imported functions, the same on every engine: a function of the import's name,
//! its arguments, the number of previous calls, and the exported memory of the program.
//!
//! WASI calls return plausible results, so that programs from real compilers get past their
//! startup; calls of the `wavelock` interface mostly return 0, because lowering has a special case
//! for it.

use crate::random::Random;

/// What a host function does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reply {
    /// One word per result, truncated to its type by the engine.
    pub(crate) results: Vec<u64>,
    /// Bytes to write: address and contents. Those that do not fit are left out.
    pub(crate) writes: Vec<(u32, Vec<u8>)>,
    /// Whether it does not return.
    pub(crate) exits: bool,
}

/// One call of an imported function.
pub(crate) struct Asked<'a> {
    pub(crate) module: &'a str,
    pub(crate) name: &'a str,
    pub(crate) arguments: &'a [u64],
    /// How many results it has.
    pub(crate) results: usize,
    /// Host calls of this instance before this one.
    pub(crate) before: u64,
    pub(crate) memory: &'a [u8],
}

impl Asked<'_> {
    pub(crate) fn reply(&self) -> Reply {
        match (self.module, self.name) {
            ("wasi_snapshot_preview1", name) => self.wasi(name),
            (_, "abort" | "proc_exit" | "exit") => Reply { exits: true, ..Reply::default() },
            ("wavelock", _) => self.small(),
            _ => self.mixed(),
        }
    }

    fn argument(&self, place: usize) -> u32 {
        self.arguments.get(place).map_or(0, |word| *word as u32)
    }

    fn word_at(&self, address: u32) -> u32 {
        let bytes = self.memory.get(address as usize..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    fn errno(&self, number: u64) -> Reply {
        Reply { results: vec![number; self.results], ..Reply::default() }
    }

    fn writing(&self, writes: Vec<(u32, Vec<u8>)>) -> Reply {
        Reply { results: vec![0; self.results], writes, exits: false }
    }

    fn wasi(&self, name: &str) -> Reply {
        let word = |at: u32, value: u32| (at, value.to_le_bytes().to_vec());
        match name {
            "proc_exit" => Reply { exits: true, ..Reply::default() },
            "fd_write" => {
                let (first, count) = (self.argument(1), self.argument(2).min(64));
                let lengths = (0..count).map(|at| self.word_at(first.wrapping_add(8 * at + 4)));
                let sum = lengths.fold(0u32, u32::wrapping_add);
                self.writing(vec![word(self.argument(3), sum)])
            }
            "fd_read" => self.writing(vec![word(self.argument(3), 0)]),
            "args_sizes_get" | "environ_sizes_get" => {
                self.writing(vec![word(self.argument(0), 0), word(self.argument(1), 0)])
            }
            "clock_time_get" => {
                let time = (1_000 + self.before).to_le_bytes().to_vec();
                self.writing(vec![(self.argument(2), time)])
            }
            "random_get" => {
                let count = self.argument(1).min(4_096) as usize;
                let bytes = Random::new(self.before).bytes(count);
                self.writing(vec![(self.argument(0), bytes)])
            }
            "fd_fdstat_get" if self.argument(0) < 3 => self.writing(vec![
                (self.argument(1), vec![2; 1]),
                (self.argument(1).wrapping_add(8), vec![0xff; 16]),
            ]),
            "args_get" | "environ_get" | "fd_close" | "sched_yield" => self.errno(0),
            "fd_prestat_get" | "fd_fdstat_get" => self.errno(8),
            "fd_seek" => self.errno(70),
            _ => self.errno(52),
        }
    }

    /// Mostly 0, sometimes an error, sometimes a small number.
    fn small(&self) -> Reply {
        let mut random = self.random();
        let word = match random.below(8) {
            0 => (-(random.below(12) as i64)) as u64,
            1 => 1 + random.below(100),
            _ => 0,
        };
        Reply { results: vec![word; self.results], ..Reply::default() }
    }

    /// Zero, small and any words.
    fn mixed(&self) -> Reply {
        let mut random = self.random();
        let mut word = || match random.below(3) {
            0 => 0,
            1 => random.below(4),
            // Not a NaN of either width: we do not define whether a host's NaN is preserved.
            _ => random.next() & 0x3fff_ffff_3fff_ffff,
        };
        Reply { results: (0..self.results).map(|_| word()).collect(), ..Reply::default() }
    }

    fn random(&self) -> Random {
        let name =
            self.name.bytes().fold(self.before, |sum, byte| sum.rotate_left(7) ^ u64::from(byte));
        Random::new(self.arguments.iter().fold(name, |sum, word| sum.rotate_left(17) ^ word))
    }
}
