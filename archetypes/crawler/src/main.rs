//! `cargo run -p crawler` tells the story; `-- --help` lists the rest.

fn main() -> std::process::ExitCode {
    walkthrough::main(crawler::archetype())
}
