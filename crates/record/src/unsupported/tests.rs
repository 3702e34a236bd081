use super::*;

#[test]
fn json_holds_the_code_and_the_facts() {
    let scope =
        Unsupported::PtraceScope { scope: 3, call: "process_vm_readv".into(), errno: Errno::EPERM };
    let nested = Unsupported::NoWorkingSource { reason: Some(Box::new(scope.clone())) };
    let json = serde_json::to_value(&nested).unwrap();
    let expected = serde_json::json!({
        "code": "no_working_source",
        "reason": {
            "code": "ptrace_scope", "scope": 3, "call": "process_vm_readv", "errno": 1,
        },
    });
    assert_eq!(json, expected);
    assert_eq!(serde_json::from_value::<Unsupported>(json).unwrap(), nested);
    assert_eq!(nested.help(), scope.help());
    let text = "kernel.yama.ptrace_scope=3 forbids process_vm_readv (EPERM)";
    assert_eq!(scope.to_string(), text);
}

#[test]
fn parts_keep_their_codes() {
    let pool = Unsupported::from(PoolUnsupported::ReadOnly { error: "EROFS".into() });
    let json = serde_json::to_value(&pool).unwrap();
    assert_eq!(json, serde_json::json!({ "code": "read_only", "error": "EROFS" }));
    assert_eq!(serde_json::from_value::<Unsupported>(json).unwrap(), pool);
    assert_eq!(pool.help(), ["run it on the host: containers mount /sys read-only"]);
    assert_eq!(Unsupported::because(&"no").help(), [""; 0]);
}
