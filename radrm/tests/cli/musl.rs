//! Programs of the C library musl: the shim is loaded into them with `LD_PRELOAD`, and does nothing there.

use std::fs;

use crate::common::{Output, Place, finish};

/// Program that writes what it does with its loader, in one line each; ends with 7. With the words
/// `exec PROGRAM...` it becomes that program.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static __thread int own = 1;
static void *thread(void *add) { own += (int)(long)add; return (void *)(long)own; }
static void say(const char *what, const void *found) {
    const char *error = dlerror();
    Dl_info info = {0};
    if (found) dladdr(found, &info);
    const char *file = info.dli_fname ? strrchr(info.dli_fname, '/') : 0;
    printf("%s: %s %s %s\n", what, found ? "found" : "missing", file ? file : "", error ? error : "");
}
int main(int count, char **words) {
    if (count > 2 && !strcmp(words[1], "exec")) { execvp(words[2], words + 2); return 126; }
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    int loaded = 0;
    while (fgets(line, sizeof line, maps)) loaded |= strstr(line, "libradrm.so") != 0;
    fprintf(stderr, "loaded: %d\n", loaded);
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, thread, (void *)i);
    for (int i = 0; i < 4; i++) { void *sum; pthread_join(threads[i], &sum); printf("thread %ld\n", (long)sum); }
    void *library = dlopen("./libplugin.so", RTLD_NOW);
    say("dlopen", library);
    say("own", dlsym(library, "plugin"));
    printf("plugin: %d\n", library ? ((int (*)(void))dlsym(library, "plugin"))() : -1);
    say("default", dlsym(RTLD_DEFAULT, "puts"));
    say("next", dlsym(RTLD_NEXT, "malloc"));
    say("driver", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    say("nowhere", dlsym(library, "no_such_name"));
    say("closed", dlopen("./no_such_library.so", RTLD_NOW));
    printf("%d %s\n", own, getenv("KEPT"));
    return 7;
}
"#;

const PLUGIN: &str = r#"
#include <stdlib.h>
static __thread int calls = 40;
int plugin(void) { free(malloc(100)); calls += 2; return calls; }
"#;

/// A place with the program `musl` and its library, where musl's compiler is installed.
fn compiled() -> Option<Place> {
    let place = Place::new();
    let compiler = std::process::Command::new("musl-gcc").arg("--version").output();
    if !compiler.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no musl-gcc (apt-get install musl-tools)");
        return None;
    }
    fs::write(place.join("musl.c"), PROGRAM).unwrap();
    fs::write(place.join("plugin.c"), PLUGIN).unwrap();
    finish(&mut place.command("musl-gcc", &["-w", "-o", "musl", "musl.c"])).code(0);
    finish(&mut place.command("musl-gcc", &["-shared", "-fPIC", "-o", "libplugin.so", "plugin.c"])).code(0);
    Some(place)
}

/// Returns true if the shim was in the program.
#[track_caller]
fn loaded(output: &Output) -> bool {
    let line = output.stderr.lines().find_map(|line| line.strip_prefix("loaded: "));
    line.expect("the program says whether") == "1"
}

#[test]
fn a_musl_program_that_a_recorded_program_starts_runs_as_without() {
    let Some(place) = compiled() else { return };
    let loader = fs::read_dir("/lib")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-musl-")));
    let loader = loader.expect("musl's loader").display().to_string();
    for start in ["./musl", &format!("{loader} ./musl")] {
        let script = format!("{start}; echo ended with $?");
        let alone = finish(place.command("sh", &["-c", &script]).env("KEPT", "a b"));
        let recorded = finish(place.silent(&["sh", "-c", &script]).env("KEPT", "a b"));
        assert!(alone.text().ends_with("1 a b\nended with 7\n"), "{alone:?}");
        assert_eq!(recorded.code(0).text(), alone.text(), "{start}: {}", recorded.stderr);
        assert!(!loaded(&alone) && loaded(&recorded), "{start}");
        assert_eq!(recorded.stderr.lines().count(), 1, "{}", recorded.stderr);
    }
}

#[test]
fn a_musl_program_is_not_counted_and_what_it_starts_is() {
    let Some(place) = compiled() else { return };
    let output = finish(&mut place.run(&["--no-dataset", "--", "./musl"]));
    let remark = "will not be counted, only programs that it starts: it uses the C library musl";
    assert!(output.code(7).stderr.contains(remark), "{}", output.stderr);
    assert!(loaded(&output));
    let output =
        finish(&mut place.silent(&["./musl", "exec", "grep", "-c", "libradrm.so", "/proc/self/maps"]));
    output.code(0);
    assert!(!output.text().starts_with('0'), "{output:?}");
}

#[test]
fn a_musl_program_is_refused_under_a_limit() {
    let Some(place) = compiled() else { return };
    for option in [&["--mem-limit", "1GiB"][..], &["--emulate", "A100-40GB"]] {
        let output = finish(&mut place.run(&[option, &["--", "./musl"]].concat()));
        assert_eq!(output.code(125).text(), "", "it was not started");
        output.one_sentence("uses the C library musl, and the shim needs glibc");
    }
}
