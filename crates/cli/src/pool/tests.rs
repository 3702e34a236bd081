use clap::Parser;
use hugepilot_units::Share;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: PoolArgs,
}

fn request(line: &str) -> Result<PoolRequest, clap::Error> {
    let line = Line::try_parse_from(["pool", "set"].into_iter().chain(line.split_whitespace()))?;
    let PoolCommand::Set(args) = line.args.command else { unreachable!("it was `set`") };
    Ok(args.request())
}

#[test]
fn every_flag_reaches_the_request() {
    let plain = request("--size 2MiB --count 8").unwrap();
    let ten = Amount::Share(Share::percent(10.0));
    let wanted = PoolRequest {
        size: Bytes::mib(2),
        count: 8,
        node: None,
        floor: ten,
        force: false,
        compact: false,
        dry_run: false,
    };
    assert_eq!(plain, wanted);
    let all =
        request("--size 1g --count 0 --node 1 --floor 1GiB --force --compact --dry-run --json")
            .unwrap();
    let floor = Amount::Bytes(Bytes::gib(1));
    let wanted = PoolRequest {
        size: Bytes::gib(1),
        count: 0,
        node: Some(1),
        floor,
        force: true,
        compact: true,
        dry_run: true,
    };
    assert_eq!(all, wanted);
}

#[test]
fn invalid_counts_and_sizes_are_errors() {
    for line in [
        "--size 2MiB",
        "--count 1",
        "--size 2MiB --count -1",
        "--size huge --count 1",
        "--size 2MiB --count 1.5",
    ] {
        assert!(request(line).is_err(), "{line}");
    }
}
