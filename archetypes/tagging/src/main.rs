//! `cargo run -p tagging` tells the story; `-- --help` lists the rest.

fn main() -> std::process::ExitCode {
    walkthrough::main(tagging::archetype())
}
