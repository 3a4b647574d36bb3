//! The description that is served is the one on file; `WAVELOCK_BLESS=1` writes it. Every route of
//! it answers, and nothing else does.

mod kit;

use kit::Kit;
use serde_json::Value;
use std::path::Path;

#[test]
fn the_description_is_the_one_on_file_and_its_routes_answer() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let expected = wavelock_serve::openapi();
    if std::env::var_os("WAVELOCK_BLESS").is_some() {
        std::fs::write(&path, &expected).expect("the file can be written");
    }
    let found = std::fs::read_to_string(&path).expect("the file exists");
    assert_eq!(found, expected, "run with WAVELOCK_BLESS=1 to accept");
    let kit = Kit::new("openapi", |_| {});
    kit.machine("one");
    let (status, served) = kit.raw(&kit.head("GET /openapi.json", ""));
    assert_eq!((status, served), (200, expected.clone()));
    let whole: Value = serde_json::from_str(&expected).expect("JSON");
    let mut routes = 0;
    for (path, methods) in whole["paths"].as_object().expect("paths") {
        for method in methods.as_object().expect("methods").keys() {
            let mut asked = path.replace("{machine}", "none").replace("{segment}", "1");
            for part in ["{session}", "{context}", "{token}"] {
                asked = asked.replace(part, "x");
            }
            asked = asked.replace("{module}", &"0".repeat(64));
            let line = format!("{} {asked}", method.to_uppercase());
            let (status, body) = kit.raw(&kit.head(&line, "content-length: 0\r\n"));
            assert!(status > 0 && status != 405 && status != 500, "{line}: {status} {body}");
            assert!(!body.contains("nothing at this path"), "{line}: {body}");
            routes += 1;
        }
        let (status, _) = kit.raw(&kit.head(&format!("PATCH {path}"), ""));
        assert_eq!(status, 405, "PATCH {path}");
    }
    assert!(routes > 35, "{routes}");
    for line in ["GET /", "GET /v1", "GET /v1/machines/", "GET /v1/machines/one/x", "GET /v2"] {
        assert_eq!(kit.raw(&kit.head(line, "")).0, 404, "{line}");
    }
}
