//! Cases of `abi`: encoded references, and the cost tables.

use wavelock_abi::{CoroutineRef, HostOperation, SCHEDULER_COSTS_V1, SchedulerOperation};

use crate::{Report, Size, Stream};

pub(crate) fn cases(report: &mut Report) {
    report.case(Size::Small, "abi/references", |trail| {
        let mut stream = Stream(1);
        for _ in 0..10_000 {
            let guest = stream.next() as i64;
            trail.number(
                CoroutineRef::from_guest(guest)
                    .map_or(u64::MAX, |reference| reference.to_guest() as u64),
            );
        }
    });
    report.case(Size::Small, "abi/costs", |trail| {
        for operation in SchedulerOperation::ALL {
            trail.bytes(operation.name().as_bytes());
            trail.number(SCHEDULER_COSTS_V1.of(*operation).0);
        }
        for operation in HostOperation::ALL {
            trail.bytes(operation.import().as_bytes());
            trail.number(operation.cost().0);
        }
    });
}
