//! From a request to its answer: everything that is checked before a handler sees it, in this
//! order: where it thinks it is, where it comes from, who asks and how often, what for, and what it
//! carries.

use super::routes::{Carries, Of, Parameter, ROUTES, Route, Scope};
use super::{App, Peer};
use crate::audit::Entry;
use crate::problem::Problem;
use crate::store::Name;
use crate::tokens::Identity;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::http::header::{self, HeaderName};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use wavelock_client::api::Role;

/// The subprotocol of a WebSocket, and what begins the one that carries a token, for pages in a
/// browser, which cannot set headers.
pub(crate) const PROTOCOL: &str = "wavelock";
const BEARER_PROTOCOL: &str = "bearer.";

/// A request that was let in.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) body: Bytes,
    pub(crate) parts: Parts,
    path: Vec<(String, String)>,
    query: BTreeMap<&'static str, String>,
}

impl Call {
    /// A part of the path.
    pub(crate) fn part(&self, name: &str) -> &str {
        let found = self.path.iter().find(|(part, _)| part == name);
        found.map_or("", |(_, value)| value)
    }

    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Problem::invalid(format!("the body: {error}")))
    }

    /// A number of the query.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.query.get(name).and_then(|value| value.parse().ok())
    }

    /// A text of the query.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.query.get(name).map_or("", |value| value)
    }

    /// The machine of the path.
    pub(crate) fn machine(&self) -> Result<Arc<crate::actor::Hosted>, Problem> {
        self.app.registry.find(self.part("machine"))
    }
}

/// An answer with a type.
fn with_type(status: StatusCode, kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// An answer in JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<Response, Problem> {
    let body =
        serde_json::to_vec(value).map_err(|error| Problem::internal(format!("JSON: {error}")))?;
    Ok(with_type(StatusCode::OK, "application/json", body.into()))
}

pub(crate) fn raw(kind: &'static str, body: Body) -> Response {
    with_type(StatusCode::OK, kind, body)
}

fn refusal(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::BAD_REQUEST);
    let body = serde_json::to_vec(&problem.json()).unwrap_or_default();
    let mut response = with_type(status, "application/json", body.into());
    let headers = response.headers_mut();
    match status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        StatusCode::METHOD_NOT_ALLOWED => {}
        _ => {}
    }
    response
}

/// Headers of every answer: no page may embed or keep it, and nothing in it is run.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "no-store"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
];

/// Answers a request; `route` is a row of the table, or why there is none.
pub(crate) async fn answer(
    app: Arc<App>,
    route: Result<&'static Route, Problem>,
    request: Request,
) -> Response {
    let began = Instant::now();
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    let peer = peer.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let method = request.method().clone();
    let path: String = request.uri().path().chars().take(200).collect();
    let allowed = allowed(&route, &path);
    let (row, name) = match &route {
        Ok(route) => (route.path, route.method),
        Err(_) => ("", "_OTHER"),
    };
    let mut who = None;
    let limit = app.limits.request_time;
    let served = tokio::time::timeout(limit, let_in(&app, route, request, peer, &mut who)).await;
    let result = served.unwrap_or_else(|_| {
        Err(Problem::slow(format!("the request took longer than {} s", limit.as_secs())))
    });
    let code = result.as_ref().err().map(|problem| problem.code);
    let mut response = match result {
        Ok(response) => response,
        Err(problem) => {
            let mut response = refusal(&problem);
            if problem.status == 405
                && let Ok(allowed) = HeaderValue::try_from(allowed)
            {
                response.headers_mut().insert(header::ALLOW, allowed);
            }
            // What the body still has is not read.
            response.headers_mut().insert(
                header::CONNECTION,
                match problem.status {
                    401 | 408 | 411 | 413 | 415 | 421 | 429 => HeaderValue::from_static("close"),
                    _ => HeaderValue::from_static("keep-alive"),
                },
            );
            response
        }
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let status = response.status().as_u16();
    let changes = method != Method::GET && method != Method::HEAD;
    if changes || matches!(status, 401 | 403 | 421) {
        let entry = Entry {
            time: 0,
            token: who.as_deref().map(|identity| identity.name.as_str()),
            peer: &peer.ip().to_string(),
            method: method.as_str(),
            path: &path,
            status,
            code,
            unlogged: 0,
        };
        if app.audit.log(entry).is_err() && changes && status < 300 {
            // The change was made; that it is not in the log is told with the answer.
            let value = HeaderValue::from_static("failed");
            response.headers_mut().insert("x-wavelock-audit", value);
        }
    }
    app.metrics.request(name, row, status, began.elapsed());
    response
}

/// The methods of a path, for an answer that refuses another.
fn allowed(route: &Result<&'static Route, Problem>, path: &str) -> String {
    if !matches!(route, Err(problem) if problem.status == 405) {
        return String::new();
    }
    let fits = |pattern: &str| {
        let (mut one, mut other) = (pattern.split('/'), path.split('/'));
        loop {
            match (one.next(), other.next()) {
                (None, None) => return true,
                (Some(part), Some(found)) if part.starts_with('{') || part == found => {}
                _ => return false,
            }
        }
    };
    let methods: Vec<_> =
        ROUTES.iter().filter(|row| fits(row.path)).map(|row| row.method).collect();
    methods.join(", ")
}

async fn let_in(
    app: &Arc<App>,
    route: Result<&'static Route, Problem>,
    request: Request,
    peer: SocketAddr,
    who: &mut Option<Arc<Identity>>,
) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    check_host(app, &parts)?;
    check_origin(app, &parts.headers)?;
    let is_public = matches!(route, Ok(route) if route.scope == Scope::Public);
    let identity = match token(&parts.headers).and_then(|token| app.tokens.find(token)) {
        Some(identity) => identity,
        None if is_public => Arc::new(Identity::nobody()),
        None => {
            return Err(match app.failures.take(peer.ip(), Instant::now()) {
                true => Problem::unauthorized("a token is needed: `Authorization: Bearer TOKEN`"),
                false => Problem::too_many(format!(
                    "more than {} requests per second without a token",
                    app.limits.failures
                )),
            });
        }
    };
    *who = Some(identity.clone());
    let key = if is_public { peer.ip().to_string() } else { identity.name.clone() };
    if !app.rates.take(key, Instant::now()) {
        return Err(Problem::too_many(format!(
            "more than {} requests per second of one token",
            app.limits.requests
        )));
    }
    let route = route?;
    let path = RawPathParams::from_request_parts(&mut parts, &()).await;
    let path = path.map_err(|_| Problem::invalid("the path is not text"))?;
    let path: Vec<(String, String)> =
        path.iter().map(|(name, value)| (name.into(), value.into())).collect();
    check_right(route, &identity, &path)?;
    let query = query(route.query, parts.uri.query().unwrap_or(""))?;
    let (body, _room) = read_body(app, route, &parts.headers, body).await?;
    (route.handler)(Call { app: app.clone(), identity, body, parts, path, query }).await
}

fn single(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut all = headers.get_all(name).iter();
    let one = all.next()?.to_str().ok()?;
    if all.next().is_some() { None } else { Some(one) }
}

/// A page of another site that has its name point here is refused by the name.
fn check_host(app: &App, parts: &Parts) -> Result<(), Problem> {
    let host = single(&parts.headers, header::HOST).unwrap_or("").to_ascii_lowercase();
    let also = parts.uri.authority().is_none_or(|authority| *authority == *host);
    if also && app.hosts.contains(&host) {
        return Ok(());
    }
    Err(Problem::misdirected("this server is not the host of the request: see `--host`"))
}

/// A page of another site is refused, whatever it asks; so CORS has nothing to allow.
fn check_origin(app: &App, headers: &HeaderMap) -> Result<(), Problem> {
    let refused = || Problem::forbidden("requests of pages of other sites are refused");
    let host = single(headers, header::HOST).unwrap_or("");
    if headers.contains_key(header::ORIGIN) {
        let scheme = if app.is_tls { "https" } else { "http" };
        let origin = single(headers, header::ORIGIN).ok_or_else(refused)?;
        if !origin.eq_ignore_ascii_case(&format!("{scheme}://{host}")) {
            return Err(refused());
        }
    }
    match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => Err(refused()),
    }
}

/// The token of a request.
fn token(headers: &HeaderMap) -> Option<&str> {
    if headers.contains_key(header::AUTHORIZATION) {
        return single(headers, header::AUTHORIZATION)?.strip_prefix("Bearer ");
    }
    let protocols = single(headers, header::SEC_WEBSOCKET_PROTOCOL)?;
    protocols.split(',').find_map(|protocol| protocol.trim().strip_prefix(BEARER_PROTOCOL))
}

/// A machine that a token is not for is answered like one that does not exist.
fn check_right(
    route: &Route,
    identity: &Identity,
    path: &[(String, String)],
) -> Result<(), Problem> {
    if route.scope == Scope::Public {
        return Ok(());
    }
    if route.scope == Scope::Machine {
        let machine = path.iter().find(|(part, _)| part == "machine");
        let name = Name::new(machine.map_or("", |(_, name)| name))?;
        if !identity.may_see(name.as_str()) {
            return Err(Problem::no_machine(name.as_str()));
        }
    }
    let role = |role: Role| format!("{role:?}").to_lowercase();
    if identity.role < route.role {
        return Err(Problem::forbidden(format!(
            "this needs the role {}: the token has {}",
            role(route.role),
            role(identity.role)
        )));
    }
    if route.scope == Scope::All && !identity.is_for_all() {
        return Err(Problem::forbidden("this needs a token for all machines (`*`)"));
    }
    Ok(())
}

/// The parameters of a query. One that is not in the table, or given twice, is refused.
fn query(
    known: &'static [Parameter],
    text: &str,
) -> Result<BTreeMap<&'static str, String>, Problem> {
    let mut found = BTreeMap::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode(name)?, decode(value)?);
        let shown: String = name.chars().take(50).collect();
        let Some(parameter) = known.iter().find(|parameter| parameter.name == name) else {
            return Err(Problem::invalid(format!("there is no parameter `{shown}` here")));
        };
        let is_digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        if parameter.of == Of::Number && (!is_digits || value.parse::<u64>().is_err()) {
            return Err(Problem::invalid(format!("`{shown}` is a number up to {}", u64::MAX)));
        }
        if found.insert(parameter.name, value).is_some() {
            return Err(Problem::invalid(format!("`{shown}` is given twice")));
        }
    }
    match known
        .iter()
        .find(|parameter| parameter.is_required && !found.contains_key(parameter.name))
    {
        Some(missing) => Err(Problem::invalid(format!("`{}` is missing", missing.name))),
        None => Ok(found),
    }
}

/// Text with `%` and two digits for a byte, and `+` for a space.
fn decode(text: &str) -> Result<String, Problem> {
    let bad = || Problem::invalid("the query is not text with escapes");
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || {
                    let digit = char::from(rest.next()?).to_digit(16)?;
                    Some(digit as u8)
                };
                digit().zip(digit()).map(|(high, low)| high << 4 | low).ok_or_else(bad)?
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

/// The body, with the room that it takes up while the request is served.
async fn read_body<'a>(
    app: &'a App,
    route: &Route,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Bytes, Option<tokio::sync::SemaphorePermit<'a>>), Problem> {
    let length = match single(headers, header::CONTENT_LENGTH) {
        Some(length) => {
            length.parse::<u64>().map_err(|_| Problem::invalid("its length is no number"))?
        }
        None if headers.contains_key(header::TRANSFER_ENCODING) => {
            return Err(Problem::no_length("a body needs `Content-Length`"));
        }
        None => 0,
    };
    let (kind, most) = match route.carries {
        Carries::Nothing | Carries::Upgrade if length == 0 => return Ok((Bytes::new(), None)),
        Carries::Nothing | Carries::Upgrade => {
            return Err(Problem::too_large("this request has no body"));
        }
        Carries::Json(_) => ("application/json", app.limits.body),
        Carries::Module => ("application/wasm", app.limits.module),
    };
    if length > most {
        return Err(Problem::too_large(format!(
            "the body has {length} bytes: at most {most} are allowed"
        )));
    }
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(Problem::unsupported("bodies are not decompressed: send it as it is"));
    }
    let found = single(headers, header::CONTENT_TYPE).unwrap_or("");
    let found = found.split(';').next().unwrap_or("").trim();
    if !found.eq_ignore_ascii_case(kind) {
        return Err(Problem::unsupported(format!("the body must be {kind}")));
    }
    let room = app.bodies.try_acquire_many((length / 1024 + 1) as u32);
    let room = room.map_err(|_| Problem::busy("too many large requests at once"))?;
    let bytes = to_bytes(body, most as usize).await;
    Ok((bytes.map_err(|_| Problem::invalid("the body ended early"))?, Some(room)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Parameter] = &[
        Parameter { name: "from", of: Of::Number, is_required: false },
        Parameter { name: "name", of: Of::Text, is_required: true },
    ];

    #[test]
    fn queries_are_decoded_and_strange_ones_refused() {
        let found = query(KNOWN, "from=7&name=a%2Fb+c").expect("a query");
        assert_eq!((found["from"].as_str(), found["name"].as_str()), ("7", "a/b c"));
        let bad = [
            "",
            "from=1",
            "name=a&x=1",
            "name=a&from=-1",
            "name=a&from=",
            "name=%2",
            "name=%zz",
            "name=%ff",
            "name=a&from=18446744073709551616",
            "name=a&name=b",
            "name=a&from=+1",
        ];
        for text in bad {
            assert!(query(KNOWN, text).is_err(), "{text}");
        }
    }
}
