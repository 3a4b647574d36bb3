//! The table of routes: what a path needs and does. The router and the OpenAPI description are made
//! from it, so that they cannot differ.

use super::answer::{Call, answer};
use super::{App, handlers};
use crate::problem::Problem;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use std::pin::Pin;
use std::sync::Arc;
use wavelock_client::api::Role;

/// What a token must be for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// Anybody, also without a token.
    Public,
    /// Any machine: the answer has those that the token may see.
    Any,
    /// The machine in the path.
    Machine,
    /// Every machine.
    All,
}

/// What a request carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carries {
    Nothing,
    /// A type of the interface.
    Json(&'static str),
    /// A module.
    Module,
    /// A WebSocket begins.
    Upgrade,
}

/// What an answer carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gives {
    /// A type of the interface.
    Json(&'static str),
    /// An empty object.
    Nothing,
    /// Any object.
    Object,
    Text,
    Bytes,
    /// A WebSocket.
    Upgrade,
}

/// The type of a parameter in a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    Number,
    Text,
}

/// A parameter of a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) of: Of,
    pub(crate) is_required: bool,
}

pub(crate) type Reply = Pin<Box<dyn Future<Output = Result<Response<Body>, Problem>> + Send>>;

/// A row of the table.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// Its name in the description.
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) role: Role,
    pub(crate) scope: Scope,
    pub(crate) query: &'static [Parameter],
    pub(crate) carries: Carries,
    pub(crate) gives: Gives,
    pub(crate) handler: fn(Call) -> Reply,
}

const fn optional(name: &'static str) -> Parameter {
    Parameter { name, of: Of::Number, is_required: false }
}

const fn required(name: &'static str, of: Of) -> Parameter {
    Parameter { name, of, is_required: true }
}

macro_rules! routes {
    ($(
        $method:ident $path:literal $name:ident $role:ident $scope:ident [$($query:expr),*]
        $carries:expr => $gives:expr, $summary:literal;
    )*) => {
        /// Every route.
        pub(crate) const ROUTES: &[Route] = &[$(Route {
            method: stringify!($method),
            path: $path,
            name: stringify!($name),
            summary: $summary,
            role: Role::$role,
            scope: Scope::$scope,
            query: &[$($query),*],
            carries: $carries,
            gives: $gives,
            handler: |call| Box::pin(handlers::$name(call)),
        }),*];
    };
}

use Carries::{Json, Module, Nothing, Upgrade};

routes! {
    GET "/healthz" health Viewer Public [] Nothing => Gives::Nothing, "Whether the server answers";
    GET "/openapi.json" description Viewer Public [] Nothing => Gives::Object, "This description";
    GET "/metrics" metrics Viewer Any [] Nothing => Gives::Text, "Metrics of the server and of the machines that the token may see, for Prometheus";
    GET "/v1/machines" list_machines Viewer Any [] Nothing => Gives::Json("Machines"), "The machines that the token may see";
    POST "/v1/machines" create_machine Admin Any [] Json("CreateMachine") => Gives::Json("Machine"), "Create a machine; the token must be for its name";
    GET "/v1/machines/{machine}" show_machine Viewer Machine [] Nothing => Gives::Json("Machine"), "A machine";
    DELETE "/v1/machines/{machine}" delete_machine Admin Machine [] Nothing => Gives::Nothing, "Delete a machine and everything it recorded";
    POST "/v1/machines/{machine}/start" start_machine Operator Machine [] Json("Pace") => Gives::Json("Machine"), "Run frames at a rate";
    POST "/v1/machines/{machine}/pause" pause_machine Operator Machine [] Nothing => Gives::Json("Machine"), "Stop running frames";
    POST "/v1/machines/{machine}/step" step_machine Operator Machine [] Json("Step") => Gives::Json("Position"), "Run frames of a paused machine";
    POST "/v1/machines/{machine}/end" end_machine Operator Machine [] Nothing => Gives::Json("Taken"), "End the run with the next frame";
    POST "/v1/machines/{machine}/snapshot" snapshot_machine Operator Machine [] Nothing => Gives::Json("Position"), "Keep the state: the trace goes on in a new segment that begins with it";
    POST "/v1/machines/{machine}/fork" fork_machine Admin Machine [] Json("Fork") => Gives::Json("Machine"), "Make a machine from this one, now or at an earlier frame; the token must be for its name";
    POST "/v1/machines/{machine}/input" input_all Operator Machine [] Json("Bytes") => Gives::Json("Taken"), "Give every session bytes";
    GET "/v1/machines/{machine}/sessions" list_sessions Viewer Machine [optional("from")] Nothing => Gives::Json("Sessions"), "Sessions from a number on";
    POST "/v1/machines/{machine}/sessions" start_session Operator Machine [] Json("StartSession") => Gives::Json("Started"), "Start a session";
    POST "/v1/machines/{machine}/sessions/{session}/input" input Operator Machine [] Json("Bytes") => Gives::Json("Taken"), "Give a session bytes";
    POST "/v1/machines/{machine}/sessions/{session}/close" close_input Operator Machine [] Nothing => Gives::Json("Taken"), "End the input of a session";
    POST "/v1/machines/{machine}/sessions/{session}/hold" hold Operator Machine [] Nothing => Gives::Json("Taken"), "Hold a session: none of its coroutines runs";
    POST "/v1/machines/{machine}/sessions/{session}/release" release Operator Machine [] Nothing => Gives::Json("Taken"), "Release a session that is held";
    POST "/v1/machines/{machine}/sessions/{session}/end" end_session Operator Machine [] Nothing => Gives::Json("Taken"), "End a session";
    POST "/v1/machines/{machine}/sessions/{session}/replace" replace Operator Machine [] Json("Replace") => Gives::Json("Taken"), "Replace the module of a session";
    PUT "/v1/machines/{machine}/sessions/{session}/weight" set_weight Operator Machine [] Json("Weight") => Gives::Json("Taken"), "Give a session another weight";
    PUT "/v1/machines/{machine}/sessions/{session}/cap" set_cap Operator Machine [] Json("Cap") => Gives::Json("Taken"), "Give a session a cap";
    DELETE "/v1/machines/{machine}/sessions/{session}/cap" remove_cap Operator Machine [] Nothing => Gives::Json("Taken"), "Take the cap of a session away";
    PUT "/v1/machines/{machine}/sessions/{session}/contexts/{context}" set_context Operator Machine [] Json("ContextBudget") => Gives::Json("Taken"), "Give a context another budget";
    GET "/v1/machines/{machine}/frames" frames Viewer Machine [optional("from")] Nothing => Gives::Json("Frames"), "Recent frames in which something happened";
    GET "/v1/machines/{machine}/watch" watch Viewer Machine [optional("from")] Upgrade => Gives::Upgrade, "A WebSocket: frames as they happen; inputs, if the token may";
    GET "/v1/machines/{machine}/why" why Viewer Machine [required("coroutine", Of::Text), required("step", Of::Number)] Nothing => Gives::Json("Why"), "Why a coroutine ran at a step, or did not, from the trace";
    GET "/v1/machines/{machine}/events" events Viewer Machine [required("frame", Of::Number), optional("frames")] Nothing => Gives::Json("Events"), "Events of a span of frames, from the trace";
    GET "/v1/machines/{machine}/report" report Viewer Machine [] Nothing => Gives::Json("Report"), "What the machine did and cost so far";
    GET "/v1/machines/{machine}/segments" list_segments Viewer Machine [] Nothing => Gives::Json("Segments"), "The segments of the trace";
    GET "/v1/machines/{machine}/segments/{segment}" segment Viewer Machine [] Nothing => Gives::Bytes, "A segment: a trace for `wavelock replay`, `debug` and `why`";
    GET "/v1/modules" list_modules Operator Any [] Nothing => Gives::Json("Modules"), "Uploaded modules";
    POST "/v1/modules" upload_module Operator Any [] Module => Gives::Json("Module"), "Upload a module, WebAssembly or its text; it is validated";
    DELETE "/v1/modules/{module}" delete_module Admin All [] Nothing => Gives::Nothing, "Remove an uploaded module; machines keep what they use";
    GET "/v1/tokens" list_tokens Admin All [] Nothing => Gives::Json("Tokens"), "Tokens, without what they are";
    POST "/v1/tokens" create_token Admin All [] Json("CreateToken") => Gives::Json("Token"), "Make a token; the answer alone has it";
    DELETE "/v1/tokens/{token}" delete_token Admin All [] Nothing => Gives::Nothing, "Take a token back";
}

fn filter(method: &str) -> MethodFilter {
    match method {
        "POST" => MethodFilter::POST,
        "PUT" => MethodFilter::PUT,
        "DELETE" => MethodFilter::DELETE,
        _ => MethodFilter::GET,
    }
}

/// The router of the table. What is not in it needs a token like everything else.
pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let row: MethodRouter<Arc<App>> =
            on(filter(route.method), move |State(app): State<Arc<App>>, request: Request| {
                answer(app, Ok(route), request)
            });
        router = router.route(route.path, row);
    }
    let none = |State(app): State<Arc<App>>, request: Request| {
        answer(app, Err(Problem::not_found("there is nothing at this path")), request)
    };
    let wrong = |State(app): State<Arc<App>>, request: Request| {
        answer(app, Err(Problem::wrong_method("this path has other methods")), request)
    };
    router.fallback(none).method_not_allowed_fallback(wrong).with_state(app)
}
