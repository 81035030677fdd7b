//! `cargo run -p payments` tells the story; `-- --help` lists the rest.

fn main() -> std::process::ExitCode {
    walkthrough::main(payments::archetype())
}
