//! Lowering.
use wasmparser::{FuncValidator, FuncValidatorAllocations, FunctionBody, WasmModuleResources};

use crate::Module;
use crate::code::CodeBuilder;
use crate::limits::Limits;
use crate::load::Refusal;

#[derive(Default)]
pub(crate) struct Scratch {}

pub(crate) fn function<T: WasmModuleResources>(
    module: &Module,
    limits: &Limits,
    code: &mut CodeBuilder,
    scratch: &mut Scratch,
    mut validator: FuncValidator<T>,
    body: &FunctionBody<'_>,
) -> Result<FuncValidatorAllocations, Refusal> {
    let _ = (module, limits, code, scratch);
    validator.validate(body)?;
    Ok(validator.into_allocations())
}
