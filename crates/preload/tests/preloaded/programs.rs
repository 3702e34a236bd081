//! Tests with programs from other projects.

mod postgres;
mod redis;

use std::fs;

use hugepilot_testkit::{need, requires};

use super::Preloaded;

#[test]
fn python_runs() {
    requires!(need::program("python3"));
    let program = "
import json, threading, subprocess, gc
def work(i, out):
    data = {str(n): list(range(n % 50)) for n in range(20000)}
    back = json.loads(json.dumps(data))
    out[i] = sum(len(back[k]) for k in data)
out = {}
threads = [threading.Thread(target=work, args=(i, out)) for i in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
gc.collect()
child = subprocess.run(['echo', 'child'], capture_output=True)
print(sorted(out.values()), child.stdout.decode().strip())
";
    // Python's allocator of small objects would serve most of them.
    let mut python = Preloaded::new("python3", &["-c", program]);
    let (printed, report) = {
        python.command.env("PYTHONMALLOC", "malloc");
        python.run()
    };
    assert_eq!(printed.trim(), "[490000, 490000, 490000, 490000] child");
    assert!(report["mapped_bytes"].as_u64() >= Some(32 << 20), "{report}");
}

#[test]
fn git_runs() {
    requires!(need::program("git"));
    let folder = std::env::temp_dir().join(format!("hugepilot-preload-git-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let git = |args: &[&str]| {
        let mut git = Preloaded::new("git", args);
        git.command.current_dir(&folder).env("HOME", &folder).env("GIT_CONFIG_NOSYSTEM", "1");
        git.run().0
    };
    git(&["init", "--quiet"]);
    for i in 0..200 {
        fs::write(folder.join(format!("file{i}")), format!("{i}\n").repeat(i * 10)).unwrap();
    }
    git(&["add", "."]);
    git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "all"]);
    git(&["gc", "--quiet"]);
    git(&["fsck", "--strict"]);
    assert_eq!(git(&["ls-files"]).lines().count(), 200);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_java_machine_runs() {
    requires!(need::program("java"));
    let source = std::env::temp_dir().join(format!("HugepilotPreload{}.java", std::process::id()));
    let class = source.file_stem().unwrap().to_string_lossy().into_owned();
    let text = format!(
        "import java.util.*; import java.util.stream.*;
        public class {class} {{ public static void main(String[] args) throws Exception {{
            List<Thread> threads = new ArrayList<>(); long[] sums = new long[8];
            for (int t = 0; t < 8; t++) {{ int own = t; Thread thread = new Thread(() -> {{
                Map<String, Integer> map = new HashMap<>();
                for (int i = 0; i < 50000; i++) map.put(\"k\" + i, i);
                for (int v : map.values()) sums[own] += v; }});
                thread.start(); threads.add(thread); }}
            for (Thread thread : threads) thread.join();
            System.out.println(Arrays.stream(sums).sum()); }} }}"
    );
    fs::write(&source, text).unwrap();
    let (printed, report) = Preloaded::new("java", &["-Xmx128m", source.to_str().unwrap()]).run();
    fs::remove_file(&source).unwrap();
    assert_eq!(printed.trim(), "9999800000");
    assert!(report["threads"].as_u64() > Some(8), "{report}");
}
