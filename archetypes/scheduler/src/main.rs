//! `cargo run -p scheduler` tells the story; `-- --help` lists the rest.

fn main() -> std::process::ExitCode {
    walkthrough::main(scheduler::archetype())
}
