"""`python -m pocketmq`, also installed as the command `pocketmq`."""

from pocketmq.cli.main import main

if __name__ == "__main__":
    main()
